SELECT attempt, started_at, ended_at, ending, failure, rule, next_at
FROM redrive_attempts WHERE seq = ?1 ORDER BY attempt
