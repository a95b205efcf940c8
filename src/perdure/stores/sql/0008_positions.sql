-- Fewer pages for each delta. AUTOINCREMENT writes a page of its own with each commit: positions come from a counter
-- instead, of which `meta` reserves many at a time. And how far a launch was read is written beside the last event that
-- this led to (`output_offset`), so that its row in `launches` is written only when something else of it changes.
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

-- The number of the session's last event when the row was written: an `output_offset` of a later one is newer than the
-- row's own. Of several launches of a session, the one whose row was written last has these.
ALTER TABLE launches ADD COLUMN written_seq INTEGER NOT NULL DEFAULT 0;
UPDATE launches SET written_seq = COALESCE(
    (SELECT MAX(seq) FROM events WHERE events.session_key = launches.session_key), 0);
