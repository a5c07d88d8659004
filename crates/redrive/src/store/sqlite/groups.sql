SELECT done.fingerprint, count(*), max(done.seq), jobs.id, min(done.finished_at), max(done.finished_at)
FROM redrive_done AS done INDEXED BY redrive_done_dead CROSS JOIN redrive_jobs AS jobs ON jobs.seq = done.seq
WHERE done.state = 'dead'
-- With max(), the other columns are those of the row that has it.
GROUP BY done.fingerprint ORDER BY 2 DESC, 1 LIMIT ?1
