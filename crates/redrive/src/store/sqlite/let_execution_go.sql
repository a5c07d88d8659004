-- Only while it waits for the others: a delay of its own stays.
UPDATE redrive_live SET due_at = min(due_at, ?2), reason = NULL
WHERE seq IN (SELECT execution FROM redrive_edges WHERE before = ?1) AND reason IN ('dependency', 'snoozed')
RETURNING seq, queue, priority, due_at
