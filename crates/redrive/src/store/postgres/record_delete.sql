DELETE FROM redrive.records WHERE shelf = $1 AND name = $2
