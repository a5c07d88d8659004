SELECT version, body FROM redrive_policies WHERE id = ?1
