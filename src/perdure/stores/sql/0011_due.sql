-- When a clock of an idle session fires, so that whichever server runs then finds it. Sessions of older versions have none
-- until their next change; a server that starts looks at all of them.
ALTER TABLE sessions ADD COLUMN due_at TEXT;
CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;
