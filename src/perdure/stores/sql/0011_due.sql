-- When a timer of an idle session fires, so that any server can find it. Sessions of older versions have no value until
-- their next change. A server checks all of them when it starts.
ALTER TABLE sessions ADD COLUMN due_at TEXT;
CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;
