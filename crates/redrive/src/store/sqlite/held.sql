SELECT count(*) FROM redrive_meta WHERE name = 'held'
