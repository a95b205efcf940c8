-- Of each turn that is over, what a history reads of it: a cache of the log, so that a long session is read by turn.
-- `seq` is the last event that it was made of, `size` how many bytes it has when it is not compressed. Turns that older
-- versions have stored, and very long ones, have no row and are read from the log. A table of its own, and not columns
-- of `turns`: lists of turns are read without these.
CREATE TABLE turn_records (
    session_key INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    size INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (session_key, turn)
);
