-- Scheduled jobs. `start_at` is when the job's next run begins, in milliseconds since 1970, or NULL if there is none. A
-- change names the revision that it read, so of two servers that find a job due, one gets it.
CREATE TABLE jobs (
    job_id TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    start_at INTEGER,
    body BLOB NOT NULL
);
CREATE INDEX jobs_by_start ON jobs (start_at) WHERE start_at IS NOT NULL;

-- One row for each due time that was decided on. The id of a scheduled run is its due time, so it has one row. What was
-- said is in columns of its own: it goes when its session is erased, and the row stays.
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
