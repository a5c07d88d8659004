-- The fence: nothing happens unless the attempt is still the one that was claimed.
UPDATE redrive_live
SET due_at = ?3, attempt = ?4, failures = ?5, crashes = ?6, snoozes = ?7, holds = ?8, interruptions = ?9,
    reason = ?10, last_delay_ms = coalesce(?11, last_delay_ms), expires_at = ?12, held = 0
WHERE seq = ?1 AND attempt = ?2
