SELECT listed.key, done.state, done.why, done.finished_at, done.output
FROM json_each(?1) AS listed
CROSS JOIN redrive_jobs AS jobs ON jobs.id = listed.value
CROSS JOIN redrive_done AS done ON done.seq = jobs.seq
