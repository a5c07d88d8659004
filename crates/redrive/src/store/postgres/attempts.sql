SELECT attempt, started_at, ended_at, ending, failure, rule, next_at, fingerprint
FROM redrive.attempts WHERE seq = $1 ORDER BY attempt, started_at
