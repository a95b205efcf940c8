-- A process may serve several sessions, so a launch has a row for each of them.
CREATE TABLE launches_2 (
    launch_id TEXT NOT NULL,
    session_key INTEGER NOT NULL,
    agent TEXT NOT NULL,
    driver TEXT NOT NULL,
    phase TEXT NOT NULL,
    offset INTEGER NOT NULL,
    performed_seq INTEGER NOT NULL,
    input_total INTEGER NOT NULL,
    pending_input BLOB NOT NULL,
    driver_state BLOB NOT NULL,
    PRIMARY KEY (launch_id, session_key)
);
INSERT INTO launches_2 SELECT * FROM launches;
DROP TABLE launches;
ALTER TABLE launches_2 RENAME TO launches;
CREATE INDEX launches_by_session ON launches (session_key);
