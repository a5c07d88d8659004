DELETE FROM redrive_done WHERE seq = ?1
