-- Partitions of the log: by the month in which a session was created, counted from the year 0.
CREATE FUNCTION perdure_month_v1(at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(year FROM at AT TIME ZONE 'UTC') * 12 + extract(month FROM at AT TIME ZONE 'UTC') - 1)::bigint
$$;

-- Create missing partitions for this month and the following ones. Returns how many were created.
CREATE FUNCTION perdure_make_partitions_v1(ahead integer) RETURNS integer LANGUAGE plpgsql
SET lock_timeout = '2s' AS $$
DECLARE
    month bigint;
    name text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('perdure'), hashtext('partitions'));
    FOR month IN SELECT generate_series(perdure_month_v1(now()), perdure_month_v1(now()) + ahead) LOOP
        name := format('events_%s_%s', month / 12, lpad((month % 12 + 1)::text, 2, '0'));
        IF to_regclass(name) IS NULL THEN
            EXECUTE format('CREATE TABLE %I PARTITION OF events FOR VALUES FROM (%s) TO (%s)',
                name, month << 40, (month + 1) << 40);
            made := made + 1;
        END IF;
    END LOOP;
    RETURN made;
END $$;

-- Drop partitions of past months without sessions. Each drop locks the whole table for a moment. If the lock times out,
-- a later call tries again.
CREATE FUNCTION perdure_drop_partitions_v1() RETURNS integer LANGUAGE plpgsql
SET lock_timeout = '200ms' AS $$
DECLARE
    part record;
    dropped integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('perdure'), hashtext('partitions'));
    FOR part IN
        SELECT name, month FROM (
            SELECT relname AS name,
                split_part(relname, '_', 2)::bigint * 12 + split_part(relname, '_', 3)::bigint - 1 AS month
            FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
            WHERE inhparent = 'events'::regclass AND relname ~ '^events_[0-9]+_[0-9]+$') AS parts
        WHERE month < perdure_month_v1(now()) - 1  -- a session created at midnight may not be visible yet
    LOOP
        IF NOT EXISTS (
            SELECT 1 FROM heads WHERE session_key >= part.month << 40 AND session_key < (part.month + 1) << 40
        ) THEN
            EXECUTE format('DROP TABLE %I', part.name);
            dropped := dropped + 1;
        END IF;
    END LOOP;
    RETURN dropped;
END $$;

SELECT perdure_make_partitions_v1(2);

-- The index of a text, from folded words. Not to_tsvector: its parser splits `4e3f2a1` into a number and a word.
CREATE FUNCTION perdure_words_v1(words text) RETURNS tsvector LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(string_agg(format('''%s'':%s', word, least(number, 16383)), ' '), '')::tsvector
    FROM unnest(string_to_array(words, ' ')) WITH ORDINALITY AS each (word, number) WHERE word <> ''
$$;

-- Store a group of steps, one per session, in one call. Each step is checked separately, and a rejected one does not
-- affect the others. To prevent deadlocks, rows are locked in the order of their keys, then new sessions in the order
-- of their names, and native ids last.
--
-- Parameters are arrays. The first ones have an entry for each step. `runs` are consecutive events of a step with the
-- same type, turn and decisiveness. `bodies` are the events themselves, each with the number of its run. What only few
-- steps have is in `rest` (see `perdure_append_rest_v1`).
--
-- Statuses: 0 stored, 1 another fencing token, 2 no such session, 3 another decision came first, 4 not the last event,
-- 5 owned by a live node, 6 a receipt without an event, 7 the message was already accepted, 8 the first step lacks its
-- state, 9 the launch's row is needed, 10 another node created the session. `firsts` is the number of a step's first
-- event if it was stored, otherwise the last one before it. For 3 and 4 it is the number that the session has.
CREATE FUNCTION perdure_append_v1(
    ids text[], expects bigint[], expect_lasts bigint[], given_tokens bigint[],
    claim_nodes text[], claim_lives bigint[],
    counts integer[], starts integer[], decided integer[], marks bigint[], offsets bigint[], flags integer[],
    types text[], run_steps integer[], run_types integer[], run_turns integer[], run_decisive integer[],
    bodies bytea[], body_runs integer[], rest jsonb,
    OUT statuses integer[], OUT firsts bigint[], OUT tokens bigint[], OUT owners text[], OUT lives bigint[]
) LANGUAGE plpgsql
SET lock_timeout = '2s' SET jit = off
-- One plan per connection, always by index, whatever the statistics are when it is made.
SET plan_cache_mode = 'force_generic_plan' SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    numbers bigint[];
    keys bigint[];
    lasts bigint[];
    takes boolean[];
BEGIN
    IF EXISTS (SELECT 1 FROM unnest(claim_nodes) AS claim (node) WHERE claim.node IS NOT NULL) THEN
        -- A separate statement, so that the next one sees which nodes are alive after the locks were taken.
        PERFORM 1 FROM heads WHERE session_id = ANY (ids) ORDER BY session_key FOR UPDATE;
    END IF;
    -- Lock existing sessions in the order of keys. Then check in the order of steps.
    SELECT array_agg(found.number), array_agg(found.session_key), array_agg(found.last_seq), array_agg(found.status),
        array_agg(CASE found.status
            WHEN 3 THEN found.decided_seq WHEN 4 THEN found.last_seq
            ELSE found.last_seq + (found.events > 0)::integer
        END),
        array_agg(found.fencing_token), array_agg(coalesce(found.owner, '')), array_agg(coalesce(found.incarnation, 0)),
        array_agg(found.claim_node IS NOT NULL AND found.may_take
            AND (found.owner, found.incarnation) IS DISTINCT FROM (found.claim_node, found.claim_life))
    INTO numbers, keys, lasts, statuses, firsts, tokens, owners, lives, takes
    FROM (
        SELECT judged.*,
            CASE
                WHEN judged.token <> judged.fencing_token THEN 1
                WHEN judged.expect <> judged.decided_seq THEN 3
                WHEN judged.expect_last <> judged.last_seq THEN 4
                WHEN judged.token IS NOT NULL AND NOT judged.may_take THEN 5
                WHEN judged.flags & 1 > 0 THEN 6
                WHEN judged.flags & 4 > 0 AND judged.launch_mark IS DISTINCT FROM judged.mark THEN 9
                ELSE 0
            END AS status
        FROM (
            SELECT locked.*,
                CASE
                    WHEN locked.claim_node IS NULL OR locked.owner IS NULL THEN true
                    WHEN locked.owner = locked.claim_node THEN locked.claim_life >= locked.incarnation
                    ELSE NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.node = locked.owner AND NOT nodes.dead)
                END AS may_take
            FROM (
                SELECT step.*, heads.*
                FROM unnest(ids, expects, expect_lasts, given_tokens, claim_nodes, claim_lives, counts, marks, flags)
                    WITH ORDINALITY
                    AS step (id, expect, expect_last, token, claim_node, claim_life, events, mark, flags, number)
                JOIN heads ON heads.session_id = step.id
                ORDER BY heads.session_key FOR UPDATE OF heads
            ) AS locked
        ) AS judged
        ORDER BY judged.number
    ) AS found;

    IF coalesce(cardinality(numbers), 0) < cardinality(ids) THEN
        -- Some sessions don't exist. They have the key 0 until they are created.
        SELECT array_agg(every.key), array_agg(every.last_seq), array_agg(every.status), array_agg(every.first),
            array_agg(every.token), array_agg(every.owner), array_agg(every.life), array_agg(every.takes)
        INTO keys, lasts, statuses, firsts, tokens, owners, lives, takes
        FROM (
            SELECT coalesce(found.key, 0) AS key, coalesce(found.last_seq, 0) AS last_seq,
                coalesce(found.status, step.status) AS status,
                coalesce(found.first, CASE WHEN step.status = 0 THEN (step.events > 0)::integer ELSE 0 END) AS first,
                coalesce(found.token, 0) AS token, coalesce(found.owner, '') AS owner,
                coalesce(found.life, 0) AS life, coalesce(found.takes, step.claim_node IS NOT NULL) AS takes
            FROM (
                SELECT given.number, given.claim_node, given.events,
                    CASE
                        WHEN given.token <> 0 THEN 2
                        WHEN given.expect <> 0 THEN 3
                        WHEN given.expect_last <> 0 THEN 4
                        WHEN given.flags & 1 > 0 THEN 6
                        WHEN given.expect IS NULL THEN 2
                        WHEN given.flags & 2 = 0 THEN 8
                        ELSE 0
                    END AS status
                FROM unnest(ids, expects, expect_lasts, given_tokens, claim_nodes, counts, flags)
                    WITH ORDINALITY AS given (id, expect, expect_last, token, claim_node, events, flags, number)
            ) AS step
            LEFT JOIN unnest(numbers, keys, lasts, statuses, firsts, tokens, owners, lives, takes)
                AS found (number, key, last_seq, status, first, token, owner, life, takes) ON found.number = step.number
            ORDER BY step.number
        ) AS every;
    END IF;

    IF rest IS NOT NULL THEN
        SELECT made.keys, made.statuses INTO keys, statuses
        FROM perdure_append_begin_v1(ids, keys, statuses, rest) AS made;
    END IF;

    IF true = ANY (takes) THEN
        SELECT array_agg(CASE WHEN taken.it THEN taken.token + 1 ELSE taken.token END),
            array_agg(CASE WHEN taken.it THEN taken.claim_node ELSE taken.owner END),
            array_agg(CASE WHEN taken.it THEN taken.claim_life ELSE taken.life END)
        INTO tokens, owners, lives
        FROM (
            SELECT step.takes AND step.status = 0 AS it, step.*
            FROM unnest(takes, statuses, tokens, owners, lives, claim_nodes, claim_lives)
                WITH ORDINALITY AS step (takes, status, token, owner, life, claim_node, claim_life, number)
            ORDER BY step.number
        ) AS taken;
        INSERT INTO former_owners
        SELECT step.key, step.claim_node
        FROM unnest(takes, statuses, keys, claim_nodes) AS step (takes, status, key, claim_node)
        WHERE step.takes AND step.status = 0
        ORDER BY step.key
        ON CONFLICT DO NOTHING;
    END IF;

    INSERT INTO events (session_key, seq, turn, decisive, type, body)
    SELECT keys[run_steps[event.run]],
        lasts[run_steps[event.run]] + event.number - starts[run_steps[event.run]],
        nullif(run_turns[event.run], -2147483648), run_decisive[event.run] = 1, types[run_types[event.run]], event.body
    FROM unnest(bodies, body_runs) WITH ORDINALITY AS event (body, run, number)
    WHERE statuses[run_steps[event.run]] = 0;

    IF 1 = ANY (run_decisive) THEN
        INSERT INTO changes (session_key, seq, type)
        SELECT keys[run_steps[event.run]],
            lasts[run_steps[event.run]] + event.number - starts[run_steps[event.run]], types[run_types[event.run]]
        FROM unnest(body_runs) WITH ORDINALITY AS event (run, number)
        WHERE run_decisive[event.run] = 1 AND statuses[run_steps[event.run]] = 0;
    END IF;

    IF rest IS NOT NULL THEN
        PERFORM perdure_append_rest_v1(keys, statuses, firsts, lasts, counts, rest);
    END IF;

    UPDATE heads SET
        last_seq = step.last_seq + step.events,
        decided_seq = CASE WHEN step.decided > 0 THEN step.last_seq + step.decided ELSE heads.decided_seq END,
        fencing_token = step.token,
        owner = CASE WHEN step.flags & 16 > 0 THEN NULL ELSE nullif(step.owner, '') END,
        incarnation = CASE WHEN step.flags & 16 > 0 OR step.owner = '' THEN NULL ELSE step.life END,
        launch_mark = CASE WHEN step.flags & 8 > 0 THEN NULL ELSE coalesce(step.mark, heads.launch_mark) END,
        output_offset = coalesce(step.output_offset, heads.output_offset)
    FROM unnest(keys, statuses, lasts, counts, decided, tokens, owners, lives, marks, offsets, flags)
        AS step (key, status, last_seq, events, decided, token, owner, life, mark, output_offset, flags)
    WHERE heads.session_key = step.key AND step.status = 0
        AND (step.events > 0 OR step.mark IS NOT NULL OR step.flags & 24 > 0 OR heads.fencing_token <> step.token);
END $$;

-- The first half of what only few steps have: messages that were already accepted, and new sessions.
CREATE FUNCTION perdure_append_begin_v1(ids text[], INOUT keys bigint[], INOUT statuses integer[], rest jsonb)
LANGUAGE plpgsql AS $$
DECLARE
    made record;
BEGIN
    IF rest ? 'receipts' THEN
        FOR made IN
            SELECT receipt.step FROM jsonb_to_recordset(rest -> 'receipts') AS receipt (step integer, message_id text)
            WHERE statuses[receipt.step] = 0 AND EXISTS (
                SELECT 1 FROM receipts
                WHERE receipts.session_key = keys[receipt.step] AND receipts.message_id = receipt.message_id)
        LOOP
            statuses[made.step] := 7;
        END LOOP;
    END IF;
    IF NOT rest ? 'listed' OR NOT 0 = ANY (keys) THEN
        RETURN;
    END IF;
    FOR made IN
        WITH added AS (
            INSERT INTO heads (session_key, session_id, last_seq, decided_seq)
            SELECT perdure_month_v1(now()) << 40 | nextval('session_numbers'), step.id, 0, 0
            FROM unnest(ids, keys, statuses) AS step (id, key, status)
            WHERE step.key = 0 AND step.status = 0
            ORDER BY step.id
            ON CONFLICT DO NOTHING
            RETURNING session_id, session_key
        )
        SELECT step.number, added.session_key
        FROM unnest(ids, keys, statuses) WITH ORDINALITY AS step (id, key, status, number)
        LEFT JOIN added ON added.session_id = step.id
        WHERE step.key = 0 AND step.status = 0
    LOOP
        IF made.session_key IS NULL THEN
            statuses[made.number] := 10;
        ELSE
            keys[made.number] := made.session_key;
        END IF;
    END LOOP;
END $$;

-- The second half: all rows of the stored steps. Bytes are base64.
CREATE FUNCTION perdure_append_rest_v1(
    keys bigint[], statuses integer[], firsts bigint[], lasts bigint[], counts integer[], rest jsonb
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF rest ? 'listed' THEN
        INSERT INTO sessions AS sessions (session_key, project, agent, workdir, state, status, title, labels, archived,
            parent, last_active_at, public, due_at, takes_slot, machine_state)
        SELECT keys[row.step], row.project, row.agent, row.workdir, row.state, row.status, row.title,
            ARRAY(SELECT jsonb_array_elements_text(row.labels)), row.archived, row.parent, row.last_active_at,
            decode(row.public, 'base64'), row.due_at, row.takes_slot, decode(row.machine_state, 'base64')
        FROM jsonb_to_recordset(rest -> 'listed') AS row (step integer, project text, agent text, workdir text,
            state text, status text, title text, labels jsonb, archived boolean, parent text, last_active_at text,
            public text, due_at text, takes_slot boolean, machine_state text)
        WHERE statuses[row.step] = 0
        ON CONFLICT (session_key) DO UPDATE SET project = excluded.project, agent = excluded.agent,
            workdir = excluded.workdir, state = excluded.state, status = excluded.status, title = excluded.title,
            labels = excluded.labels, archived = excluded.archived, parent = excluded.parent,
            last_active_at = excluded.last_active_at, public = excluded.public, due_at = excluded.due_at,
            takes_slot = excluded.takes_slot,
            machine_state = coalesce(excluded.machine_state, sessions.machine_state);
    END IF;
    IF rest ? 'states' THEN
        UPDATE sessions SET machine_state = decode(row.state, 'base64')
        FROM jsonb_to_recordset(rest -> 'states') AS row (step integer, state text)
        WHERE sessions.session_key = keys[row.step] AND statuses[row.step] = 0;
    END IF;
    IF rest ? 'turns' THEN
        INSERT INTO turns (session_key, turn, visible, public)
        SELECT keys[row.step], row.turn, row.visible, decode(row.public, 'base64')
        FROM jsonb_to_recordset(rest -> 'turns') AS row (step integer, turn integer, visible boolean, public text)
        WHERE statuses[row.step] = 0
        ON CONFLICT (session_key, turn) DO UPDATE SET visible = excluded.visible, public = excluded.public;
    END IF;
    IF rest ? 'spent' THEN
        INSERT INTO spent
        SELECT keys[row.step], row.turn, row.started_at, row.agent, row.model, row.context, row.input_tokens,
            row.output_tokens, row.cache_read_tokens, row.cache_write_tokens, row.cost_usd, row.input_bytes,
            row.duration_ms, row.said_bytes
        FROM jsonb_to_recordset(rest -> 'spent') AS row (step integer, turn integer, started_at text, agent text,
            model text, context text, input_tokens bigint, output_tokens bigint, cache_read_tokens bigint,
            cache_write_tokens bigint, cost_usd double precision, input_bytes bigint, duration_ms bigint,
            said_bytes bigint)
        WHERE statuses[row.step] = 0
        ON CONFLICT (session_key, turn) DO UPDATE SET started_at = excluded.started_at, agent = excluded.agent,
            model = excluded.model, context = excluded.context, input_tokens = excluded.input_tokens,
            output_tokens = excluded.output_tokens, cache_read_tokens = excluded.cache_read_tokens,
            cache_write_tokens = excluded.cache_write_tokens, cost_usd = excluded.cost_usd,
            input_bytes = excluded.input_bytes, duration_ms = excluded.duration_ms, said_bytes = excluded.said_bytes;
    END IF;
    IF rest ? 'records' THEN
        -- Remove a record that lacks events stored by others in the meantime.
        DELETE FROM turn_records USING jsonb_to_recordset(rest -> 'records')
            AS row (step integer, turn integer, after bigint, record text)
        WHERE turn_records.session_key = keys[row.step] AND turn_records.turn = row.turn AND statuses[row.step] = 0
            AND (row.record IS NULL OR row.after IS DISTINCT FROM lasts[row.step]);
        INSERT INTO turn_records (session_key, turn, seq, size, record)
        SELECT keys[row.step], row.turn, lasts[row.step] + counts[row.step], row.size, decode(row.record, 'base64')
        FROM jsonb_to_recordset(rest -> 'records')
            AS row (step integer, turn integer, after bigint, size bigint, record text)
        WHERE statuses[row.step] = 0 AND row.record IS NOT NULL AND row.after = lasts[row.step]
        ON CONFLICT (session_key, turn) DO UPDATE
        SET seq = excluded.seq, size = excluded.size, record = excluded.record;
    END IF;
    IF rest ? 'hidden' THEN
        -- After the rows, because a hidden turn is never written again.
        UPDATE turns SET visible = false
        FROM jsonb_to_recordset(rest -> 'hidden') AS row (step integer, first integer, last integer)
        WHERE turns.session_key = keys[row.step] AND turns.turn BETWEEN row.first AND row.last
            AND statuses[row.step] = 0;
    END IF;
    IF rest ? 'receipts' THEN
        INSERT INTO receipts (session_key, message_id, digest, answer, seq)
        SELECT keys[row.step], row.message_id, row.digest, decode(row.answer, 'base64'), firsts[row.step] + row.event
        FROM jsonb_to_recordset(rest -> 'receipts')
            AS row (step integer, message_id text, digest text, answer text, event bigint)
        WHERE statuses[row.step] = 0;
    END IF;
    IF rest ? 'launches' THEN
        PERFORM perdure_append_launches_v1(keys, statuses, rest);
    END IF;
    IF rest ? 'phrases' THEN
        -- A session has one title and a turn one user text. If a step has several, the last one counts.
        DELETE FROM phrases USING jsonb_to_recordset(rest -> 'phrases') AS row (step integer, turn integer, role text)
        WHERE phrases.session_key = keys[row.step] AND phrases.turn = row.turn AND phrases.role = row.role
            AND row.role <> 'assistant' AND statuses[row.step] = 0;
        INSERT INTO phrases (session_key, turn, role, text, words)
        SELECT keys[row.step], row.turn, row.role, row.text, perdure_words_v1(row.words)
        FROM jsonb_to_recordset(rest -> 'phrases') AS row (step integer, turn integer, role text, text text, words text)
        WHERE statuses[row.step] = 0;
    END IF;
    IF rest ? 'given' THEN
        PERFORM perdure_append_given_v1(keys, statuses, rest);
    END IF;
END $$;

-- Rows of launches. First copy the progress of the session's last launch from `heads` into its row.
CREATE FUNCTION perdure_append_launches_v1(keys bigint[], statuses integer[], rest jsonb)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE launches SET output_offset = heads.output_offset
    FROM jsonb_to_recordset(rest -> 'launches') AS row (step integer), heads
    WHERE heads.session_key = keys[row.step] AND launches.session_key = keys[row.step]
        AND launches.mark = heads.launch_mark AND statuses[row.step] = 0;
    DELETE FROM launches USING jsonb_to_recordset(rest -> 'launches') AS row (step integer, launch_id text, phase text)
    WHERE launches.session_key = keys[row.step] AND launches.launch_id = row.launch_id AND row.phase = 'gone'
        AND statuses[row.step] = 0;
    INSERT INTO launches (session_key, launch_id, mark, output_offset, performed_seq, input_total, agent, driver, phase,
        pending_input, driver_state)
    SELECT keys[row.step], row.launch_id, row.mark, row.output_offset, row.performed_seq, row.input_total, row.agent,
        row.driver, row.phase, decode(row.pending_input, 'base64'), decode(row.driver_state, 'base64')
    FROM jsonb_to_recordset(rest -> 'launches') AS row (step integer, launch_id text, mark bigint, output_offset bigint,
        performed_seq bigint, input_total bigint, agent text, driver text, phase text, pending_input text,
        driver_state text)
    WHERE statuses[row.step] = 0 AND row.phase <> 'gone'
    ON CONFLICT (session_key, launch_id) DO UPDATE SET mark = excluded.mark, output_offset = excluded.output_offset,
        performed_seq = excluded.performed_seq, input_total = excluded.input_total, phase = excluded.phase,
        pending_input = excluded.pending_input, driver_state = excluded.driver_state;
END $$;

-- Native session ids that agents issued. Two nodes may store one at the same time, so each id is locked, in order.
CREATE FUNCTION perdure_append_given_v1(keys bigint[], statuses integer[], rest jsonb)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    row record;
BEGIN
    FOR row IN
        SELECT DISTINCT hashtext(given.program || chr(1) || given.native_session_id) AS number
        FROM jsonb_to_recordset(rest -> 'given') AS given (program text, native_session_id text) ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(hashtext('perdure natives'), row.number);
    END LOOP;
    FOR row IN
        SELECT * FROM jsonb_to_recordset(rest -> 'given')
            AS given (step integer, program text, native_session_id text, agent text)
        WHERE statuses[given.step] = 0
    LOOP
        -- An id that is issued again counts as issued twice, for its new session and for the earlier ones.
        INSERT INTO natives VALUES (row.program, row.native_session_id, keys[row.step], row.agent, false)
        ON CONFLICT (program, native_session_id, session_key, agent) DO UPDATE SET twice = true;
        UPDATE natives SET twice = true
        WHERE program = row.program AND native_session_id = row.native_session_id AND NOT twice AND EXISTS (
            SELECT 1 FROM natives AS other WHERE other.program = row.program
                AND other.native_session_id = row.native_session_id OFFSET 1);
    END LOOP;
END $$;
