SELECT attempt, started_at, ended_at, ending, failure, rule, next_at, fingerprint
FROM redrive_attempts WHERE seq = ?1 AND failure IS NOT NULL ORDER BY attempt DESC LIMIT 1
