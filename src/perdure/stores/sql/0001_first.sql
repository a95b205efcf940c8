-- Who may write. The store's owner has the highest generation; appends with another one are refused.
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    generation INTEGER NOT NULL
);
INSERT INTO meta (one, generation) VALUES (1, 0);

-- One row per session: its state, and the columns that lists filter and sort by.
CREATE TABLE sessions (
    session_key INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    machine_state BLOB NOT NULL,
    decided_seq INTEGER NOT NULL,
    project TEXT,
    agent TEXT NOT NULL,
    workdir TEXT NOT NULL,
    state TEXT NOT NULL,
    status TEXT NOT NULL,
    title TEXT NOT NULL,
    labels TEXT NOT NULL,
    archived INTEGER NOT NULL,
    parent TEXT,
    last_active_at TEXT NOT NULL,
    public BLOB NOT NULL
);
CREATE INDEX sessions_by_activity ON sessions (last_active_at DESC, session_key DESC);
CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL;

-- The log. Rows are appended at the end of the table, whatever their session: a key clustered by session would cost
-- two thirds of the throughput. `position` orders the events of all sessions. It is never reused, not even after an
-- erase, because followers store it. `first_seq` and `cuts` are set only on joined runs.
CREATE TABLE events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    session_key INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    turn INTEGER,
    decisive INTEGER NOT NULL,
    body BLOB NOT NULL,
    first_seq INTEGER,
    cuts BLOB
);
CREATE UNIQUE INDEX events_by_session ON events (session_key, seq);
CREATE INDEX events_decisive ON events (decisive) WHERE decisive = 1;

CREATE TABLE turns (
    session_key INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    visible INTEGER NOT NULL,
    public BLOB NOT NULL,
    PRIMARY KEY (session_key, turn)
) WITHOUT ROWID;

-- Accepted messages, for idempotency: a repeated message gets the same answer.
CREATE TABLE receipts (
    session_key INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    answer BLOB NOT NULL,
    PRIMARY KEY (session_key, message_id)
) WITHOUT ROWID;

-- Agent processes that are not gone, and how far each has progressed.
CREATE TABLE launches (
    launch_id TEXT NOT NULL PRIMARY KEY,
    session_key INTEGER NOT NULL,
    agent TEXT NOT NULL,
    driver TEXT NOT NULL,
    phase TEXT NOT NULL,
    offset INTEGER NOT NULL,
    performed_seq INTEGER NOT NULL,
    input_total INTEGER NOT NULL,
    pending_input BLOB NOT NULL,
    driver_state BLOB NOT NULL
);
CREATE INDEX launches_by_session ON launches (session_key);

-- What search finds. The text is in an ordinary table, because the index alone can't tell which rows a session has.
CREATE TABLE phrases (
    phrase_key INTEGER PRIMARY KEY,
    session_key INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    role TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX phrases_by_session ON phrases (session_key, turn, role);
CREATE VIRTUAL TABLE phrases_index USING fts5 (
    text,
    content = 'phrases',
    content_rowid = 'phrase_key',
    tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER phrases_inserted AFTER INSERT ON phrases BEGIN
    INSERT INTO phrases_index (rowid, text) VALUES (new.phrase_key, new.text);
END;
CREATE TRIGGER phrases_deleted AFTER DELETE ON phrases BEGIN
    INSERT INTO phrases_index (phrases_index, rowid, text) VALUES ('delete', old.phrase_key, old.text);
END;

-- Small named values.
CREATE TABLE documents (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
