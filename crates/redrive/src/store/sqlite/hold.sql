UPDATE redrive_live SET held = 1 WHERE seq = ?1
