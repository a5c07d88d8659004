-- The condition is that of the index live_retries.
SELECT l.due_at, l.seq, l.id FROM redrive.live AS l
WHERE (l.attempt > 0 OR l.reason IN ('backoff', 'retry_after', 'by_hand')) AND (l.due_at, l.seq) > ($1, $2)
ORDER BY l.due_at, l.seq LIMIT $3
