SELECT EXISTS (
    SELECT 1 FROM redrive.claims AS c CROSS JOIN LATERAL unnest(c.seqs, c.attempts) AS listed (seq, attempt)
    WHERE c.id = $1 AND listed.seq = $2 AND listed.attempt = $3)
