-- The database's identity. The epoch increases when event numbers may have been issued twice, which is the case if the
-- cluster or the timeline differs from the one stored here.
CREATE TABLE meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    cluster_id text NOT NULL DEFAULT replace(gen_random_uuid()::text, '-', ''),
    epoch bigint NOT NULL DEFAULT 0,
    system_identifier bigint,
    timeline bigint,
    place bigint,
    format_version integer NOT NULL DEFAULT 0
);
INSERT INTO meta DEFAULT VALUES;

-- The servers that have joined. `heartbeat` increases while a node is alive. Other nodes set `dead`.
CREATE TABLE nodes (
    node text COLLATE "C" PRIMARY KEY,
    incarnation bigint NOT NULL,
    heartbeat bigint NOT NULL DEFAULT 0,
    dead boolean NOT NULL DEFAULT false,
    draining boolean NOT NULL DEFAULT false,
    about bytea NOT NULL
) WITH (fillfactor = 50);
-- The last incarnation of each removed node. If the node comes back, it gets a higher one.
CREATE TABLE removed_nodes (
    node text COLLATE "C" PRIMARY KEY,
    incarnation bigint NOT NULL
);

-- The end of each session's log and the session's owner: everything that an append checks and changes. The row is
-- narrow, and an append of text changes no indexed column, so the update stays within the page (HOT) and copies no
-- state. The key's upper bits are the month in which the session was created (see `events`).
-- `launch_mark` names the launch whose row was written last, and `output_offset` is how far its output was read. A step
-- that adds only text therefore writes no other row.
CREATE TABLE heads (
    session_key bigint PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL UNIQUE,
    last_seq bigint NOT NULL,
    decided_seq bigint NOT NULL,
    fencing_token bigint NOT NULL DEFAULT 0,
    incarnation bigint,
    launch_mark bigint,
    output_offset bigint,
    owner text COLLATE "C"
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX heads_by_owner ON heads (owner) WHERE owner IS NOT NULL;
CREATE SEQUENCE session_numbers CACHE 10;

-- The session's state, and the columns that lists filter and sort by.
CREATE TABLE sessions (
    session_key bigint PRIMARY KEY,
    archived boolean NOT NULL,
    takes_slot boolean NOT NULL,
    last_active_at text COLLATE "C" NOT NULL,
    due_at text COLLATE "C",
    project text COLLATE "C",
    agent text COLLATE "C" NOT NULL,
    workdir text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    title text COLLATE "C" NOT NULL,
    labels text[] NOT NULL,
    public bytea NOT NULL,
    machine_state bytea
) WITH (fillfactor = 70);
CREATE INDEX sessions_by_activity ON sessions (last_active_at DESC, session_key DESC);
CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_waiting ON sessions (last_active_at, session_key) WHERE state = 'accepted';
CREATE INDEX sessions_running ON sessions (session_key) WHERE state IN ('processing', 'waiting');
CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX sessions_that_take_a_slot ON sessions (project) WHERE takes_slot;

-- The log. A partition has the sessions of one month. When all of them are erased, it is dropped, which costs nothing.
-- `first_seq` and `cuts` are set only on joined runs. A delta updates only the primary key's index.
CREATE TABLE events (
    session_key bigint NOT NULL,
    seq bigint NOT NULL,
    turn integer,
    decisive boolean NOT NULL,
    type text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    first_seq bigint,
    cuts bytea,
    PRIMARY KEY (session_key, seq)
) PARTITION BY RANGE (session_key);
-- Where each turn starts and what changed in it later, to read some turns without the others.
CREATE INDEX events_of_turns ON events (session_key, turn, seq)
    WHERE type IN ('user_message', 'turn_start', 'history_changed');
CREATE TABLE events_default PARTITION OF events DEFAULT;

-- The global order of decisive events. A sequence does not follow the order of commits, so readers take only rows of
-- transactions older than every open one, ordered by (xid, position).
CREATE TABLE changes (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    position bigint GENERATED ALWAYS AS IDENTITY,
    session_key bigint NOT NULL,
    seq bigint NOT NULL,
    type text COLLATE "C" NOT NULL,
    PRIMARY KEY (xid, position)
);
CREATE INDEX changes_by_session ON changes (session_key);

CREATE TABLE turns (
    session_key bigint NOT NULL,
    turn integer NOT NULL,
    visible boolean NOT NULL,
    public bytea NOT NULL,
    PRIMARY KEY (session_key, turn)
);

-- A record of each finished turn: a cache of the log.
CREATE TABLE turn_records (
    session_key bigint NOT NULL,
    turn integer NOT NULL,
    seq bigint NOT NULL,
    size bigint NOT NULL,
    record bytea NOT NULL,
    PRIMARY KEY (session_key, turn)
);

-- What each turn has cost. Rewound turns stay, because they were paid for.
CREATE TABLE spent (
    session_key bigint NOT NULL,
    turn integer NOT NULL,
    started_at text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    model text COLLATE "C",
    context text COLLATE "C" NOT NULL,
    input_tokens bigint,
    output_tokens bigint,
    cache_read_tokens bigint,
    cache_write_tokens bigint,
    cost_usd double precision,
    input_bytes bigint,
    duration_ms bigint,
    said_bytes bigint NOT NULL,
    PRIMARY KEY (session_key, turn)
);
CREATE INDEX spent_by_time ON spent (started_at);

-- Accepted messages, for idempotency: a repeated message gets the same answer.
CREATE TABLE receipts (
    session_key bigint NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    digest text NOT NULL,
    answer bytea NOT NULL,
    seq bigint,
    PRIMARY KEY (session_key, message_id)
);

-- Agent processes that are not gone, with one row for each session that a process serves. If `mark` is the session's
-- `launch_mark`, the `output_offset` in `heads` applies instead of this one.
CREATE TABLE launches (
    launch_key bigint GENERATED ALWAYS AS IDENTITY,
    session_key bigint NOT NULL,
    launch_id text COLLATE "C" NOT NULL,
    mark bigint NOT NULL,
    output_offset bigint NOT NULL,
    performed_seq bigint NOT NULL,
    input_total bigint NOT NULL,
    agent text NOT NULL,
    driver text NOT NULL,
    phase text NOT NULL,
    pending_input bytea NOT NULL,
    driver_state bytea NOT NULL,
    PRIMARY KEY (session_key, launch_id)
) WITH (fillfactor = 70);
CREATE INDEX launches_by_id ON launches (launch_id);

-- What search finds. `words` has the text without accents, so that no extension is needed.
CREATE TABLE phrases (
    phrase_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_key bigint NOT NULL,
    turn integer NOT NULL,
    role text NOT NULL,
    text text NOT NULL,
    words tsvector NOT NULL
);
CREATE INDEX phrases_by_session ON phrases (session_key, turn, role);
CREATE INDEX phrases_by_word ON phrases USING gin (words);

-- The native session ids that agents issued to sessions here. `twice`: the id was issued more than once, so it is
-- unknown which session it names. It stays set after the other sessions were erased.
CREATE TABLE natives (
    program text COLLATE "C" NOT NULL,
    native_session_id text COLLATE "C" NOT NULL,
    session_key bigint NOT NULL,
    agent text COLLATE "C" NOT NULL,
    twice boolean NOT NULL,
    PRIMARY KEY (program, native_session_id, session_key, agent)
);
CREATE INDEX natives_by_session ON natives (session_key);
CREATE INDEX natives_given_twice ON natives (program, native_session_id) WHERE twice;

-- Every node that has ever owned a session.
CREATE TABLE former_owners (
    session_key bigint NOT NULL,
    node text COLLATE "C" NOT NULL,
    PRIMARY KEY (session_key, node)
);

-- Small named values, and for each kind a number that changes with any of its values.
CREATE TABLE documents (
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE TABLE document_marks (
    kind text COLLATE "C" PRIMARY KEY,
    mark bigint NOT NULL
) WITH (fillfactor = 50);

-- Scheduled jobs, and one row for each due time that was handled.
CREATE TABLE jobs (
    job_id text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL,
    start_at bigint,
    body bytea NOT NULL
);
CREATE INDEX jobs_by_start ON jobs (start_at) WHERE start_at IS NOT NULL;
CREATE TABLE job_runs (
    job_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    due_at bigint NOT NULL,
    is_open boolean NOT NULL,
    session_id text COLLATE "C",
    body bytea NOT NULL,
    detail bytea,
    message bytea,
    result bytea,
    PRIMARY KEY (job_id, run_id)
);
CREATE INDEX job_runs_by_due ON job_runs (job_id, due_at, run_id);
CREATE INDEX open_job_runs ON job_runs (job_id) WHERE is_open;
CREATE INDEX job_runs_by_session ON job_runs (session_id) WHERE session_id IS NOT NULL;

-- A project's row is locked while its slots are counted. Reservations are for turns that are about to start.
CREATE TABLE project_locks (
    project text COLLATE "C" PRIMARY KEY
);
CREATE TABLE slot_reservations (
    project text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (project, session_id)
);

-- Attachments of messages. They may be stored before their session.
CREATE TABLE files (
    session_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (session_id, name)
);

-- Use lz4 if the server has it: it costs a fraction of the default. Files are mostly images, already compressed.
DO $$
DECLARE
    place record;
BEGIN
    FOR place IN
        SELECT attrelid::regclass AS name, attname FROM pg_attribute
        WHERE atttypid IN ('bytea'::regtype, 'text'::regtype, 'tsvector'::regtype) AND attnum > 0
            AND attrelid IN (
                SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p'))
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET COMPRESSION lz4', place.name, place.attname);
    END LOOP;
EXCEPTION WHEN feature_not_supported THEN
    RAISE NOTICE 'this server has no lz4';
END $$;
ALTER TABLE files ALTER COLUMN data SET STORAGE EXTERNAL;
