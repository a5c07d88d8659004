-- What these claims hold. The commit that made them may still be waiting for its standby: whoever only reads does not
-- wait for it, so this writes something, too.
WITH waits AS (
    INSERT INTO redrive.tallies (queue, counts) SELECT id, '{}' FROM redrive.queues LIMIT 1
)
SELECT r.claim, r.seq, r.attempt
FROM redrive.running AS r JOIN redrive.live AS l ON l.seq = r.seq AND l.attempt = r.attempt
WHERE r.claim = ANY ($1)
