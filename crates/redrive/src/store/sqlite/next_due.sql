SELECT due_at, seq, crashes, kind
FROM redrive_live INDEXED BY redrive_live_due
WHERE queue = ?1 AND priority = ?2 AND held = 0 AND (due_at, seq) > (?3, ?4)
ORDER BY due_at, seq
