-- One row for each lease that was taken away, and one for a holder that has lost none.
WITH renewed AS (
    UPDATE redrive.holders SET until = $2 WHERE id = $1 RETURNING id
)
SELECT c.id, l.seq, listed.attempt, l.job
FROM renewed AS h
LEFT JOIN (redrive.claims AS c
    CROSS JOIN LATERAL unnest(c.lost, c.lost_jobs) AS l (seq, job)
    JOIN LATERAL unnest(c.seqs, c.attempts) AS listed (seq, attempt) ON listed.seq = l.seq)
ON c.holder = h.id
