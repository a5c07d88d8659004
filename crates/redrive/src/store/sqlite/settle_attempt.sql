INSERT INTO redrive_attempts (seq, attempt, started_at, ended_at, ending, failure, fingerprint, rule, next_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (seq, attempt) DO NOTHING
