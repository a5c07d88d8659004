-- One look into the index for each job, wherever its history lies.
SELECT last.attempt, last.started_at, last.ended_at, last.ending, last.failure, last.rule, last.next_at, last.fingerprint,
    job.seq
FROM unnest($1) AS job (seq)
CROSS JOIN LATERAL (
    SELECT * FROM redrive.attempts AS a
    WHERE a.seq = job.seq AND a.failure IS NOT NULL ORDER BY a.attempt DESC, a.started_at DESC LIMIT 1
) AS last
