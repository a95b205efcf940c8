-- The native session ids that agents issued to sessions here. An agent may issue an id twice, and then it is unknown
-- which session it names. `twice` is set for every session with that id, and stays set after the others were erased.
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
-- From the log: what an agent opened after each launch, except what it was asked to resume. A session may leave a
-- shared process and join it again, so several launches of a session may have the same name.
CREATE TEMPORARY TABLE launched AS
SELECT session_key, seq, CAST(body AS TEXT) AS body FROM events WHERE decisive = 1 AND type = 'agent_launched';
CREATE INDEX launched_in_order ON launched (session_key, seq);
CREATE TEMPORARY TABLE opened AS
SELECT session_key, native_session_id, (
    SELECT MAX(launched.seq) FROM launched WHERE launched.session_key = attached.session_key
        AND launched.seq < attached.seq AND launched.body ->> 'launch_id' = attached.launch_id) AS launched_seq
FROM (
    SELECT session_key, seq, body ->> 'launch_id' AS launch_id, body ->> 'native_session_id' AS native_session_id
    FROM (
        SELECT session_key, seq, CAST(body AS TEXT) AS body FROM events WHERE decisive = 1 AND type = 'agent_attached')
) AS attached
WHERE native_session_id IS NOT NULL;
INSERT INTO natives
SELECT body ->> 'fingerprint', opened.native_session_id, opened.session_key, body ->> 'agent',
    COUNT(DISTINCT opened.launched_seq) > 1
FROM opened JOIN launched ON launched.session_key = opened.session_key AND launched.seq = opened.launched_seq
WHERE (body ->> 'native_session_id') IS NOT opened.native_session_id
GROUP BY 1, 2, 3, 4;
DROP TABLE opened;
DROP TABLE launched;
UPDATE natives SET twice = 1 WHERE (program, native_session_id) IN (
    SELECT program, native_session_id FROM natives GROUP BY program, native_session_id HAVING COUNT(*) > 1);
