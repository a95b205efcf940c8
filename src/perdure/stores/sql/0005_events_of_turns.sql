-- Where each turn starts and what changed in it later, to read some turns without the others.
CREATE INDEX events_of_turns ON events (session_key, turn, seq, type)
    WHERE type IN ('user_message', 'turn_start', 'history_changed');
