-- Scheduled jobs. `start_at` is the start of the next run in milliseconds since 1970, or NULL if none is planned. A
-- change names the revision it read (optimistic concurrency), so only one of two servers that find a job due runs it.
CREATE TABLE jobs (
    job_id TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    start_at INTEGER,
    body BLOB NOT NULL
);
CREATE INDEX jobs_by_start ON jobs (start_at) WHERE start_at IS NOT NULL;

-- One row for each due time that was handled. The id of a scheduled run is its due time, so each has one row. Text of
-- the conversation is in separate columns, which are cleared when the session is erased.
CREATE TABLE job_runs (
    job_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    is_open INTEGER NOT NULL,
    session_id TEXT,
    body BLOB NOT NULL,
    detail BLOB,
    message BLOB,
    result BLOB,
    PRIMARY KEY (job_id, run_id)
);
CREATE INDEX job_runs_by_due ON job_runs (job_id, due_at, run_id);
CREATE INDEX open_job_runs ON job_runs (job_id) WHERE is_open = 1;
CREATE INDEX job_runs_by_session ON job_runs (session_id) WHERE session_id IS NOT NULL;
