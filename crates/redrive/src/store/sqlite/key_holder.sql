SELECT redrive_jobs.seq, redrive_jobs.id
FROM redrive_keys CROSS JOIN redrive_jobs ON redrive_jobs.seq = redrive_keys.seq
WHERE redrive_keys.key = ?1
