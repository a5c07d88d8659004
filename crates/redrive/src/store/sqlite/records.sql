SELECT name, value FROM redrive_records WHERE shelf = ?1 ORDER BY name
