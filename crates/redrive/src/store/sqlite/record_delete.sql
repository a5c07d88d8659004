DELETE FROM redrive_records WHERE shelf = ?1 AND name = ?2
