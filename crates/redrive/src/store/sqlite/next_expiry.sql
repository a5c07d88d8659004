SELECT expires_at, seq, crashes
FROM redrive_live INDEXED BY redrive_live_expires
WHERE queue = ?1 AND expires_at IS NOT NULL
ORDER BY expires_at
