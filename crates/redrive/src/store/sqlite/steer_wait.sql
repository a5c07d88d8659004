UPDATE redrive_live SET due_at = ?2, reason = ?3, held = CASE held WHEN 1 THEN 1 ELSE 0 END WHERE seq = ?1
