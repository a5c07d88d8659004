INSERT INTO redrive_minutes (minute, enqueued, succeeded, failed, dead) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (minute) DO UPDATE SET
    enqueued = enqueued + excluded.enqueued, succeeded = succeeded + excluded.succeeded,
    failed = failed + excluded.failed, dead = dead + excluded.dead
