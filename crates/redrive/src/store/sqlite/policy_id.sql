SELECT id FROM redrive_policies WHERE body = ?1
