-- The oldest due job of each queue that nobody has claimed. By band, so that each
-- is the first row of an index that does not run. Jobs behind another of their key are not late.
WITH clock AS MATERIALIZED (
    SELECT redrive.now_ms() AS now
)
SELECT q.name, q.paused, (SELECT now FROM clock) - min(first.due_at) AS late, q.id
FROM redrive.queues AS q
JOIN (SELECT DISTINCT b.queue, b.priority FROM redrive.bands AS b) AS band ON band.queue = q.id
CROSS JOIN LATERAL (
    (SELECT l.due_at FROM redrive.live AS l
     WHERE l.queue = band.queue AND l.priority = band.priority AND l.ordering_key IS NULL AND l.line IS NULL
       AND l.due_at <= (SELECT now FROM clock)
       AND (l.seq, l.attempt) NOT IN (SELECT r.seq, r.attempt FROM redrive.running AS r)
     ORDER BY l.due_at LIMIT 1)
    UNION ALL
    (SELECT l.due_at FROM redrive.live AS l
     WHERE l.queue = band.queue AND l.priority = band.priority AND l.ordering_key IS NOT NULL AND NOT l.held
       AND l.line IS NULL
       AND l.due_at <= (SELECT now FROM clock)
       AND (l.seq, l.attempt) NOT IN (SELECT r.seq, r.attempt FROM redrive.running AS r)
     ORDER BY l.due_at LIMIT 1)
) AS first
GROUP BY q.id, q.name, q.paused ORDER BY late DESC
