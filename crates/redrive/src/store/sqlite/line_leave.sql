UPDATE redrive_live SET held = 0 WHERE seq = ?1 AND held >= 2
