-- The bands, by the first entry of each in the index: nothing else is read.
WITH RECURSIVE bands (queue, priority) AS (
    SELECT * FROM (SELECT queue, priority FROM redrive_live WHERE held = 0 ORDER BY queue, priority LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM redrive_live WHERE held = 0 AND (queue, priority) > (b.queue, b.priority)
            ORDER BY queue, priority LIMIT 1),
           (SELECT priority FROM redrive_live WHERE held = 0 AND (queue, priority) > (b.queue, b.priority)
            ORDER BY queue, priority LIMIT 1)
    FROM bands AS b WHERE b.queue IS NOT NULL
)
SELECT queue, priority FROM bands WHERE queue IS NOT NULL
