-- Write fewer pages for each delta. AUTOINCREMENT writes an extra page with each commit, so positions come from a
-- counter instead, of which `meta` reserves many at a time. How far a launch's output was read is stored with the last
-- event from it (`output_offset`), so its row in `launches` is written only when something else in it changes.
ALTER TABLE meta ADD COLUMN positions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN erased_position INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET positions = COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0);
UPDATE meta SET erased_position = positions;

CREATE TABLE events_2 (
    position INTEGER PRIMARY KEY,
    session_key INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    turn INTEGER,
    decisive INTEGER NOT NULL,
    body BLOB NOT NULL,
    first_seq INTEGER,
    cuts BLOB,
    output_offset INTEGER
);
INSERT INTO events_2 (position, session_key, seq, type, turn, decisive, body, first_seq, cuts)
SELECT position, session_key, seq, type, turn, decisive, body, first_seq, cuts FROM events ORDER BY position;
DROP TABLE events;
ALTER TABLE events_2 RENAME TO events;
CREATE UNIQUE INDEX events_by_session ON events (session_key, seq);
CREATE INDEX events_decisive ON events (decisive) WHERE decisive = 1;
CREATE INDEX events_of_turns ON events (session_key, turn, seq, type)
    WHERE type IN ('user_message', 'turn_start', 'history_changed');

-- The session's last event number when the row was written. The `output_offset` of a later event is newer than the
-- row's, and belongs to the session's launch whose row was written last.
ALTER TABLE launches ADD COLUMN written_seq INTEGER NOT NULL DEFAULT 0;
UPDATE launches SET written_seq = COALESCE(
    (SELECT MAX(seq) FROM events WHERE events.session_key = launches.session_key), 0);
