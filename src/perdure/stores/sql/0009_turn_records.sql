-- A record of each finished turn: a cache of the log, to read a long session by turn. `seq` is the last event included,
-- `size` the uncompressed size in bytes. Turns of older versions, and very long ones, have no row and are read from the
-- log. This is not part of `turns`, because lists of turns don't need it.
CREATE TABLE turn_records (
    session_key INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    size INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (session_key, turn)
);
