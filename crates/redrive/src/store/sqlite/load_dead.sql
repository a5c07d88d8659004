SELECT jobs.queue, count(*)
FROM redrive_done AS done INDEXED BY redrive_done_dead
CROSS JOIN redrive_jobs AS jobs ON jobs.seq = done.seq
WHERE done.state = 'dead'
GROUP BY jobs.queue
