-- Ending an agent process or a session counted as activity, so lists were sorted by when a server had stopped. Read the
-- real activity from the log, and update the three places that store it.
CREATE TEMPORARY TABLE active AS
SELECT session_key, MAX(body ->> 'at') AS at
FROM (
    SELECT session_key, type, CAST(body AS TEXT) AS body FROM events
    WHERE json_valid(CAST(body AS TEXT)) AND decisive = 1 AND type IN ('session_created', 'user_message', 'message_queued', 'pending_prompt',
        'prompt_resolved', 'turn_end', 'history_changed'))
WHERE type <> 'prompt_resolved' OR body ->> 'by' = 'person'
GROUP BY session_key;
CREATE INDEX active_by_session ON active (session_key);
UPDATE sessions SET
    machine_state = CAST(replace(CAST(machine_state AS TEXT), '"last_active_at":"' || last_active_at || '"',
        '"last_active_at":"' || at || '"') AS BLOB),
    public = CAST(replace(CAST(public AS TEXT), '"last_active_at":"' || last_active_at || '"',
        '"last_active_at":"' || at || '"') AS BLOB),
    last_active_at = at
FROM active WHERE active.session_key = sessions.session_key AND at <> last_active_at;
DROP TABLE active;
