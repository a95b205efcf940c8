-- The servers that have joined. `heartbeat` increases while a node is alive. Other nodes set `dead`.
CREATE TABLE nodes (
    node TEXT NOT NULL PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    heartbeat INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    about BLOB NOT NULL
) WITHOUT ROWID;

-- The node that owns a session, and the owner's fencing token. A session without a row never had an owner, and its
-- token is 0. A row is written only when the owner changes. The rest of a session's head is elsewhere on purpose:
-- `decided_seq` always changes together with `machine_state`, so it is in `sessions` too (one row to write instead of
-- two). The last event number is read from the index of events, so that a delta writes no further page.
CREATE TABLE heads (
    session_key INTEGER PRIMARY KEY,
    owner TEXT,
    incarnation INTEGER,
    fencing_token INTEGER NOT NULL
);

-- The number of the event that accepted the message. NULL in rows of older versions, where the answer has it.
ALTER TABLE receipts ADD COLUMN seq INTEGER;

-- Sessions with a message whose turn no owner has started.
CREATE INDEX sessions_waiting ON sessions (last_active_at, session_key) WHERE state = 'accepted';
