INSERT INTO redrive_queues (name) VALUES (?1) ON CONFLICT (name) DO NOTHING
