-- The jobs before this one with the same ordering key, first one first.
SELECT seq, due_at, held
FROM redrive_live INDEXED BY redrive_live_order
WHERE queue = ?1 AND ordering_key = ?2 AND seq < ?3
ORDER BY seq
