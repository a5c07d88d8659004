-- Endings that are written exactly as they were sent: this lease was lost to its own settlement. That commit may still
-- be waiting for its standby: whoever only reads does not wait for it, so this writes something, too.
WITH waits AS (
    INSERT INTO redrive.tallies (queue, counts) SELECT id, '{}' FROM redrive.queues LIMIT 1
)
SELECT sent.n
FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::bigint[]) WITH ORDINALITY
    AS sent (seq, attempt, started_at, ended_at, n)
WHERE EXISTS (
    SELECT 1 FROM redrive.done AS d
    WHERE d.seq = sent.seq AND d.attempt = sent.attempt AND d.started_at = sent.started_at AND NOT d.cancelled
) OR EXISTS (
    SELECT 1 FROM redrive.attempts AS a
    WHERE a.seq = sent.seq AND a.attempt = sent.attempt AND a.started_at = sent.started_at
      AND a.ended_at = sent.ended_at AND a.ending <> 'cancelled'
)
