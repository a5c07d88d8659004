-- When the oldest due job of each queue was due that no claim lists at its attempt.
SELECT q.name, q.paused, min(l.due_at)
FROM redrive_queues AS q JOIN redrive_live AS l ON l.queue = q.id
WHERE l.held = 0 AND l.due_at <= ?1
  AND (l.seq, l.attempt) NOT IN (SELECT j.value ->> 0, j.value ->> 1 FROM redrive_claims AS c, json_each(c.jobs) AS j)
GROUP BY q.id ORDER BY 3
