SELECT name, value FROM redrive.records WHERE shelf = $1 ORDER BY name COLLATE "C"
