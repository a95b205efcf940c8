-- Functions keep their plans for the lifetime of a connection, without prepared statements in the client. So frequent
-- reads are functions too.

-- Events after a position: at least one, and otherwise at most `room` bytes.
CREATE FUNCTION perdure_read_v1(id text, after bigint, upto bigint, most bigint, room bigint)
RETURNS TABLE (seq bigint, first_seq bigint, type text, turn integer, body bytea, cuts bytea) LANGUAGE plpgsql STABLE
SET plan_cache_mode = 'force_generic_plan' SET jit = off AS $$
DECLARE
    key bigint;
    head bigint;
    final bigint := upto;
BEGIN
    SELECT session_key, last_seq INTO key, head FROM heads WHERE session_id = id;
    IF upto < head THEN
        -- The row with this event, or the first one after it. Otherwise the index is read to the session's end.
        SELECT events.seq INTO final FROM events
        WHERE events.session_key = key AND events.seq >= upto ORDER BY events.seq LIMIT 1;
    END IF;
    IF room IS NULL THEN
        RETURN QUERY SELECT events.seq, coalesce(events.first_seq, events.seq), events.type, events.turn, events.body,
            events.cuts
        FROM events
        WHERE events.session_key = key AND events.seq > after AND events.seq <= final
            AND coalesce(events.first_seq, events.seq) <= upto
        ORDER BY events.seq LIMIT most;
        RETURN;
    END IF;
    RETURN QUERY SELECT counted.seq, coalesce(counted.first_seq, counted.seq), counted.type, counted.turn, counted.body,
        counted.cuts
    FROM (
        SELECT found.*, row_number() OVER (ORDER BY found.seq) AS number,
            sum(octet_length(found.body)) OVER (ORDER BY found.seq ROWS UNBOUNDED PRECEDING) AS size
        FROM (
            SELECT * FROM events
            WHERE events.session_key = key AND events.seq > after AND events.seq <= final
            AND coalesce(events.first_seq, events.seq) <= upto
            ORDER BY events.seq LIMIT most
        ) AS found
    ) AS counted
    WHERE counted.size <= room OR counted.number = 1
    ORDER BY counted.seq;
END $$;

-- The heads of many sessions, and the events after a position in each.
CREATE FUNCTION perdure_news_v1(ids text[], afters bigint[], most bigint, room bigint)
RETURNS TABLE (session_id text, last_seq bigint, decided_seq bigint, owner text, incarnation bigint, token bigint,
    after bigint, seq bigint, first_seq bigint, type text, turn integer, body bytea, cuts bytea) LANGUAGE plpgsql STABLE
SET plan_cache_mode = 'force_generic_plan' SET jit = off AS $$
BEGIN
    RETURN QUERY SELECT heads.session_id, heads.last_seq, heads.decided_seq, heads.owner, heads.incarnation,
        heads.fencing_token, asked.after, event.seq, coalesce(event.first_seq, event.seq), event.type, event.turn,
        event.body, event.cuts
    FROM unnest(ids, afters) WITH ORDINALITY AS asked (id, after, number)
    JOIN heads ON heads.session_id = asked.id
    LEFT JOIN LATERAL (
        SELECT * FROM (
            SELECT found.*, row_number() OVER (ORDER BY found.seq) AS number,
                sum(octet_length(found.body)) OVER (ORDER BY found.seq ROWS UNBOUNDED PRECEDING) AS size
            FROM (
                SELECT * FROM events WHERE events.session_key = heads.session_key AND events.seq > asked.after
                ORDER BY events.seq LIMIT most
            ) AS found
        ) AS counted
        WHERE counted.size <= room OR counted.number = 1
    ) AS event ON heads.last_seq > asked.after
    ORDER BY asked.number, event.seq;
END $$;

-- A node that starts gets a new incarnation. The heartbeat continues, so that other nodes see a change.
CREATE FUNCTION perdure_join_v1(name text, said bytea) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO nodes (node, incarnation, about)
    SELECT name, coalesce((SELECT incarnation FROM removed_nodes WHERE node = name), 0) + 1, said
    ON CONFLICT (node) DO UPDATE SET incarnation = greatest(nodes.incarnation + 1, excluded.incarnation),
        heartbeat = nodes.heartbeat + 1, dead = false, about = excluded.about
    RETURNING incarnation
$$;

CREATE FUNCTION perdure_remove_node_v1(name text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    life bigint;
BEGIN
    DELETE FROM nodes WHERE node = name RETURNING incarnation INTO life;
    IF life IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM documents WHERE kind IN ('agent.' || name, 'probe.' || name, 'tombstone.' || name, 'warm.' || name)
        OR (kind = 'cursor' AND key = 'compactor.' || name);
    DELETE FROM document_marks
    WHERE kind IN ('agent.' || name, 'probe.' || name, 'tombstone.' || name, 'warm.' || name);
    INSERT INTO removed_nodes VALUES (name, life)
    ON CONFLICT (node) DO UPDATE SET incarnation = greatest(removed_nodes.incarnation, excluded.incarnation);
    UPDATE heads SET owner = NULL, incarnation = NULL
    FROM (SELECT session_key FROM heads WHERE owner = name ORDER BY session_key FOR UPDATE) AS theirs
    WHERE heads.session_key = theirs.session_key;
    RETURN true;
END $$;

-- Make another node the owner, whoever owns the session now.
CREATE FUNCTION perdure_move_v1(id text, name text, life bigint, expect bigint) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '3s' AS $$
DECLARE
    key bigint;
BEGIN
    UPDATE heads SET owner = name, incarnation = life, fencing_token = fencing_token + 1
    WHERE session_id = id AND decided_seq = expect RETURNING session_key INTO key;
    IF key IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO former_owners VALUES (key, name) ON CONFLICT DO NOTHING;
    RETURN true;
END $$;

-- Replace runs of events with joined ones, unless they were compacted since they were read.
CREATE FUNCTION perdure_compact_v1(id text, run_firsts bigint[], run_lasts bigint[], bodies bytea[], run_cuts bytea[])
RETURNS void LANGUAGE plpgsql SET lock_timeout = '3s' SET jit = off AS $$
DECLARE
    key bigint;
    run record;
    is_whole boolean;
BEGIN
    SELECT session_key INTO key FROM heads WHERE session_id = id;
    IF key IS NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('perdure compact'), (key & 2147483647)::integer);
    FOR run IN SELECT * FROM unnest(run_firsts, run_lasts, bodies, run_cuts) AS given (first, last, body, cuts) LOOP
        SELECT count(*) > 1 AND min(coalesce(first_seq, seq)) = run.first AND max(seq) = run.last
            AND sum(seq - coalesce(first_seq, seq) + 1) = run.last - run.first + 1
            AND NOT bool_or(decisive) AND count(DISTINCT type) = 1
        INTO is_whole
        FROM events WHERE session_key = key AND seq BETWEEN run.first AND run.last;
        IF is_whole THEN
            UPDATE events SET body = run.body, first_seq = run.first, cuts = run.cuts
            WHERE session_key = key AND seq = run.last;
            DELETE FROM events WHERE session_key = key AND seq >= run.first AND seq < run.last;
        END IF;
    END LOOP;
END $$;

-- One step of erasing a session. Returns whether more steps follow. The head is deleted last.
CREATE FUNCTION perdure_erase_v1(id text, most_events integer, most_others integer, scrub_mark bytea)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '3s' SET jit = off AS $$
DECLARE
    key bigint;
    gone bigint;
BEGIN
    SELECT session_key INTO key FROM heads WHERE session_id = id;
    IF key IS NULL THEN
        DELETE FROM files WHERE session_id = id;
        RETURN false;
    END IF;
    -- Not while its runs are being joined, because both lock the same rows in different orders.
    PERFORM pg_advisory_xact_lock(hashtext('perdure compact'), (key & 2147483647)::integer);
    -- First, because readers of the global order must not find entries without an event.
    DELETE FROM changes WHERE session_key = key;
    DELETE FROM events WHERE session_key = key
        AND seq <= (SELECT max(seq) FROM (
            SELECT seq FROM events WHERE session_key = key ORDER BY seq LIMIT most_events) AS oldest);
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF gone >= most_events THEN
        RETURN true;
    END IF;
    DELETE FROM phrases WHERE phrase_key IN (SELECT phrase_key FROM phrases WHERE session_key = key LIMIT most_others);
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF gone >= most_others THEN
        RETURN true;
    END IF;
    DELETE FROM turn_records WHERE session_key = key
        AND turn IN (SELECT turn FROM turn_records WHERE session_key = key LIMIT most_others);
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF gone >= most_others THEN
        RETURN true;
    END IF;
    -- Appends wait from here on, and then find no session.
    PERFORM 1 FROM heads WHERE session_key = key FOR UPDATE;
    DELETE FROM events WHERE session_key = key;
    DELETE FROM changes WHERE session_key = key;
    DELETE FROM phrases WHERE session_key = key;
    DELETE FROM turn_records WHERE session_key = key;
    DELETE FROM turns WHERE session_key = key;
    DELETE FROM spent WHERE session_key = key;
    DELETE FROM receipts WHERE session_key = key;
    DELETE FROM launches WHERE session_key = key;
    DELETE FROM natives WHERE session_key = key;
    DELETE FROM former_owners WHERE session_key = key;
    DELETE FROM files WHERE session_id = id;
    DELETE FROM slot_reservations WHERE session_id = id;
    -- Decisions that read this session's text from a job run conflict, and read again.
    UPDATE jobs SET revision = revision + 1
    WHERE job_id IN (SELECT job_id FROM job_runs WHERE job_runs.session_id = id);
    UPDATE job_runs SET session_id = NULL, detail = NULL, message = NULL, result = NULL WHERE session_id = id;
    DELETE FROM sessions WHERE session_key = key;
    DELETE FROM heads WHERE session_key = key;
    INSERT INTO documents VALUES ('upkeep', 'scrub', scrub_mark)
    ON CONFLICT ON CONSTRAINT documents_pkey DO UPDATE SET value = excluded.value;
    RETURN false;
END $$;

-- Two statements: the second one sees runs that were added while the first one waited for the job's lock.
CREATE FUNCTION perdure_remove_job_v1(id text) RETURNS void LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
BEGIN
    DELETE FROM jobs WHERE job_id = id;
    DELETE FROM job_runs WHERE job_id = id;
END $$;

-- Store a job and its runs. Returns whether its revision was the expected one.
CREATE FUNCTION perdure_put_job_v1(
    id text, new_revision bigint, starts bigint, said bytea, expect bigint, added jsonb, changed jsonb
) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
BEGIN
    IF expect IS NULL THEN
        INSERT INTO jobs VALUES (id, new_revision, starts, said) ON CONFLICT DO NOTHING;
    ELSE
        UPDATE jobs SET revision = new_revision, start_at = starts, body = said WHERE job_id = id AND revision = expect;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO job_runs
    SELECT run.job_id, run.run_id, run.due_at, run.is_open, run.session_id, decode(run.body, 'base64'),
        decode(run.detail, 'base64'), decode(run.message, 'base64'), decode(run.result, 'base64')
    FROM jsonb_to_recordset(added) AS run (job_id text, run_id text, due_at bigint, is_open boolean, session_id text,
        body text, detail text, message text, result text)
    ON CONFLICT DO NOTHING;
    UPDATE job_runs SET due_at = run.due_at, is_open = run.is_open, session_id = run.session_id,
        body = decode(run.body, 'base64'), detail = decode(run.detail, 'base64'),
        message = decode(run.message, 'base64'), result = decode(run.result, 'base64')
    FROM jsonb_to_recordset(changed) AS run (job_id text, run_id text, due_at bigint, is_open boolean, session_id text,
        body text, detail text, message text, result text)
    WHERE job_runs.job_id = run.job_id AND job_runs.run_id = run.run_id;
    RETURN true;
END $$;

-- The sessions that take or have reserved a slot of a project, without the session that asks.
CREATE FUNCTION perdure_slot_takers_v1(of_project text, except_id text) RETURNS TABLE (session_id text, title text)
LANGUAGE sql STABLE AS $$
    SELECT heads.session_id, sessions.title FROM sessions JOIN heads USING (session_key)
    WHERE sessions.takes_slot AND sessions.project = of_project AND heads.session_id IS DISTINCT FROM except_id
    UNION ALL
    SELECT reserved.session_id, coalesce(sessions.title, '') FROM slot_reservations AS reserved
    LEFT JOIN heads ON heads.session_id = reserved.session_id
    LEFT JOIN sessions ON sessions.session_key = heads.session_key
    WHERE reserved.project = of_project AND reserved.until > clock_timestamp()
        AND reserved.session_id IS DISTINCT FROM except_id
        AND NOT coalesce(sessions.takes_slot AND sessions.project = of_project, false)
    ORDER BY 1
$$;

-- Reserve a slot. Returns no row on success, otherwise the sessions that take the slots.
CREATE FUNCTION perdure_reserve_slot_v1(of_project text, id text, most bigint, hold_s double precision)
RETURNS TABLE (session_id text, title text) LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
BEGIN
    INSERT INTO project_locks VALUES (of_project) ON CONFLICT DO NOTHING;
    PERFORM 1 FROM project_locks WHERE project = of_project FOR UPDATE;
    DELETE FROM slot_reservations WHERE project = of_project AND until <= clock_timestamp();
    IF (SELECT count(*) FROM perdure_slot_takers_v1(of_project, id)) < most THEN
        INSERT INTO slot_reservations VALUES (of_project, id, clock_timestamp() + make_interval(secs => hold_s))
        ON CONFLICT ON CONSTRAINT slot_reservations_pkey DO UPDATE SET until = excluded.until;
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM perdure_slot_takers_v1(of_project, id);
END $$;

-- The epoch of event ids. It increases if the cluster or the timeline differs from the stored one, or if the tables
-- were restored from a dump. Another cluster restarts its transaction ids, so existing rows get the lowest one.
CREATE FUNCTION perdure_epoch_v1() RETURNS bigint LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
    known meta;
    system bigint;
    line bigint;
    here bigint := 'meta'::regclass::oid::bigint;  -- a restore recreates the table
BEGIN
    line := ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint;
    BEGIN
        SELECT control.system_identifier INTO system FROM pg_control_system() AS control;
    EXCEPTION WHEN insufficient_privilege THEN
        system := NULL;  -- then only the timeline can differ
    END;
    SELECT * INTO known FROM meta;
    IF known.timeline = line AND known.place = here AND (system IS NULL OR known.system_identifier = system) THEN
        RETURN known.epoch;
    END IF;
    SELECT * INTO known FROM meta FOR UPDATE;
    IF system IS NOT NULL AND known.system_identifier <> system THEN
        UPDATE changes SET xid = '3' WHERE xid <> '3';
        UPDATE meta SET epoch = epoch + 1;
    ELSIF known.timeline <> line OR known.place <> here THEN
        UPDATE meta SET epoch = epoch + 1;
    END IF;
    UPDATE meta SET system_identifier = coalesce(system, system_identifier), timeline = line, place = here
    RETURNING epoch INTO known.epoch;
    RETURN known.epoch;
END $$;
