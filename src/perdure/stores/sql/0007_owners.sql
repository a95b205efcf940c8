-- The servers that have joined. `heartbeat` grows while a node is alive; `dead` is set by others.
CREATE TABLE nodes (
    node TEXT NOT NULL PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    heartbeat INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    about BLOB NOT NULL
) WITHOUT ROWID;

-- Which node owns a session, and the fencing token of its owner. A session without a row never had one: no owner, and
-- the token is 0. A row is written only when the owner changes. The rest of a session's head is elsewhere on purpose:
-- `decided_seq` always changes together with `machine_state`, so it stays beside it in `sessions` (one row to write
-- instead of two), and the last number is read from the index of events, so that a delta writes no further page.
CREATE TABLE heads (
    session_key INTEGER PRIMARY KEY,
    owner TEXT,
    incarnation INTEGER,
    fencing_token INTEGER NOT NULL
);

-- The number of the event that took the message; NULL for those of older versions, whose answer says it.
ALTER TABLE receipts ADD COLUMN seq INTEGER;

-- Sessions with a message that no owner has begun to work on.
CREATE INDEX sessions_waiting ON sessions (last_active_at, session_key) WHERE state = 'accepted';
