SELECT $1 + ((r.due_at - $1) / $3) * $3 AS at, count(*)
FROM (SELECT DISTINCT b.queue, b.priority FROM redrive.bands AS b) AS b
CROSS JOIN LATERAL (
    (SELECT l.seq, l.attempt, l.due_at, l.failures + l.crashes AS failures, l.reason FROM redrive.live AS l
     WHERE l.queue = b.queue AND l.priority = b.priority AND l.ordering_key IS NULL AND l.line IS NULL
       AND l.due_at >= $1 AND l.due_at < $2 LIMIT $4)
    UNION ALL
    (SELECT l.seq, l.attempt, l.due_at, l.failures + l.crashes, l.reason FROM redrive.live AS l
     WHERE l.queue = b.queue AND l.priority = b.priority AND l.ordering_key IS NOT NULL AND NOT l.held
       AND l.line IS NULL
       AND l.due_at >= $1 AND l.due_at < $2 LIMIT $4)
) AS r
WHERE (r.failures > 0 OR r.reason IN ('backoff', 'retry_after', 'crashed'))
  AND (r.seq, r.attempt) NOT IN (SELECT c.seq, c.attempt FROM redrive.running AS c)
GROUP BY 1 ORDER BY 1
