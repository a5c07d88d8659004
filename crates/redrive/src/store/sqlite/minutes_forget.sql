DELETE FROM redrive_minutes WHERE minute < ?1
