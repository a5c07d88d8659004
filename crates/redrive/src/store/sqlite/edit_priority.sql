UPDATE redrive_live SET priority = ?2 WHERE seq = ?1
