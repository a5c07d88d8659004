UPDATE redrive_live
SET priority = ?2, destination = ?3, expires_at = ?4, held = CASE held WHEN 1 THEN 1 ELSE 0 END
WHERE seq = ?1
