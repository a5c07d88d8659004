DELETE FROM redrive_holders WHERE id = ?1
