SELECT $1 + ((m.minute * 60000 - $1) / $3) * $3 AS at, sum(m.enqueued)::bigint, sum(m.succeeded)::bigint,
       sum(m.failed)::bigint, sum(m.dead)::bigint
FROM (
    SELECT minute, enqueued, succeeded, failed, dead FROM redrive.minutes
    UNION ALL
    SELECT t.minute, coalesce((t.counts ->> 'enqueued')::bigint, 0), coalesce((t.counts ->> 'succeeded')::bigint, 0),
           coalesce((t.counts ->> 'failures')::bigint, 0), coalesce((t.counts ->> 'dead')::bigint, 0)
    FROM redrive.tallies AS t WHERE t.counts ?| ARRAY['enqueued', 'succeeded', 'failures', 'dead']
) AS m
WHERE m.minute >= $1 / 60000 AND m.minute < $2 / 60000 AND m.minute > 0
GROUP BY 1 ORDER BY 1
