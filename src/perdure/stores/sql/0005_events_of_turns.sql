-- Where each turn begins, and what was changed in it afterwards: so that some turns are read without the others.
CREATE INDEX events_of_turns ON events (session_key, turn, seq, type)
    WHERE type IN ('user_message', 'turn_start', 'history_changed');
