SELECT q.name, q.paused,
       (SELECT count(*) FROM redrive.live AS l WHERE l.queue = q.id),
       coalesce(r.jobs, 0),
       (SELECT count(*) FROM redrive.dead AS d WHERE d.queue = q.id),
       (SELECT jsonb_object_agg(sums.key, sums.value)::text
        FROM (SELECT c.key, sum(c.value::bigint) AS value
              FROM redrive.tallies AS t CROSS JOIN LATERAL jsonb_each_text(t.counts) AS c
              WHERE t.queue = q.id GROUP BY 1) AS sums)
FROM redrive.queues AS q LEFT JOIN redrive.running_by_queue() AS r ON r.queue = q.id
-- An engine makes its queues known before anyone uses them: those are not counted yet.
WHERE q.paused OR EXISTS (SELECT 1 FROM redrive.bands AS b WHERE b.queue = q.id)
   OR EXISTS (SELECT 1 FROM redrive.tallies AS t WHERE t.queue = q.id AND t.counts <> '{}')
