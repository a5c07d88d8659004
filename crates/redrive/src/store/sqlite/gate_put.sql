INSERT INTO redrive_gates (name, state, next_us, retry_us, sent) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name) DO UPDATE SET state = excluded.state, next_us = excluded.next_us, retry_us = excluded.retry_us,
                                 sent = excluded.sent
