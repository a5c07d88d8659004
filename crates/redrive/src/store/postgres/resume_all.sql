DELETE FROM redrive.meta WHERE name = 'held'
