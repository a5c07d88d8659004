SELECT EXISTS (SELECT 1 FROM redrive.meta WHERE name = 'held')
