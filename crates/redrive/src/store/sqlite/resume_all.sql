DELETE FROM redrive_meta WHERE name = 'held'
