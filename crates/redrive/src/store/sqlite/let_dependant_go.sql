-- Whatever it waits for: there is nobody left before it.
UPDATE redrive_live SET due_at = min(due_at, ?2), reason = NULL
WHERE seq = ?1 AND NOT EXISTS (SELECT 1 FROM redrive_edges WHERE after = ?1)
RETURNING seq, queue, priority, due_at
