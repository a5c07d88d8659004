SELECT seq
FROM redrive_live INDEXED BY redrive_live_order
WHERE queue = ?1 AND ordering_key = ?2 AND held = 1
ORDER BY seq
LIMIT 1
