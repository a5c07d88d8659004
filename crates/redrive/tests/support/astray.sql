SELECT count(*)
FROM (SELECT seq FROM redrive_jobs UNION SELECT seq FROM redrive_live UNION SELECT seq FROM redrive_done) AS every
WHERE (SELECT count(*) FROM redrive_jobs AS jobs WHERE jobs.seq = every.seq) <> 1
   OR (SELECT count(*) FROM redrive_live AS live WHERE live.seq = every.seq)
    + (SELECT count(*) FROM redrive_done AS done WHERE done.seq = every.seq) <> 1
