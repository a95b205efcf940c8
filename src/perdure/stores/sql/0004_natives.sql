-- The ids of native sessions that agents gave to sessions here. An agent may give one out twice; then nobody knows whose
-- session it names, and `twice` says so for everybody who has it, also after the others were erased.
CREATE TABLE natives (
    program TEXT NOT NULL,
    native_session_id TEXT NOT NULL,
    session_key INTEGER NOT NULL,
    agent TEXT NOT NULL,
    twice INTEGER NOT NULL,
    PRIMARY KEY (program, native_session_id, session_key, agent)
) WITHOUT ROWID;
CREATE INDEX natives_by_session ON natives (session_key);
CREATE INDEX natives_given_twice ON natives (program, native_session_id) WHERE twice = 1;
-- From the log: what an agent opened, but for what it was asked to open again.
CREATE TEMPORARY TABLE opened AS
SELECT DISTINCT session_key, body ->> 'launch_id' AS launch_id, body ->> 'native_session_id' AS native_session_id
FROM (SELECT session_key, CAST(body AS TEXT) AS body FROM events WHERE decisive = 1 AND type = 'agent_attached')
WHERE body ->> 'native_session_id' IS NOT NULL;
INSERT INTO natives
SELECT body ->> 'fingerprint', opened.native_session_id, launched.session_key, body ->> 'agent', COUNT(*) > 1
FROM (SELECT session_key, CAST(body AS TEXT) AS body FROM events WHERE decisive = 1 AND type = 'agent_launched')
    AS launched
JOIN opened ON opened.session_key = launched.session_key AND opened.launch_id = body ->> 'launch_id'
WHERE (body ->> 'native_session_id') IS NOT opened.native_session_id
GROUP BY 1, 2, 3, 4;
DROP TABLE opened;
UPDATE natives SET twice = 1 WHERE (program, native_session_id) IN (
    SELECT program, native_session_id FROM natives GROUP BY program, native_session_id HAVING COUNT(*) > 1);
