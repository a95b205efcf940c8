-- What each turn that ran here has cost, so that totals need no JSON. Rewound turns stay, because they were paid for.
CREATE TABLE spent (
    session_key INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    agent TEXT NOT NULL,
    model TEXT,
    context TEXT NOT NULL,
    input_tokens INTEGER,
    output_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    cost_usd REAL,
    input_bytes INTEGER,
    duration_ms INTEGER,
    said_bytes INTEGER NOT NULL,
    PRIMARY KEY (session_key, turn)
) WITHOUT ROWID;
CREATE INDEX spent_by_time ON spent (started_at);
INSERT INTO spent
SELECT session_key, turn, public ->> 'started_at', public ->> 'agent', public ->> 'model', public ->> 'context',
    public ->> '$.usage.input_tokens', public ->> '$.usage.output_tokens', public ->> '$.usage.cache_read_tokens',
    public ->> '$.usage.cache_write_tokens', public ->> 'cost_usd', public ->> 'input_bytes', public ->> 'duration_ms',
    0
FROM (SELECT session_key, turn, CAST(public AS TEXT) AS public FROM turns)
WHERE public ->> 'ended_at' IS NOT NULL;
