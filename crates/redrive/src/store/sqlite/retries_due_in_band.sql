SELECT seq, attempt, due_at, failures + crashes > 0 OR coalesce(reason, '') IN ('backoff', 'retry_after', 'crashed')
FROM redrive_live INDEXED BY redrive_live_due
WHERE held = 0 AND queue = ?1 AND priority = ?2 AND due_at >= ?3 AND due_at < ?4
LIMIT ?5
