SELECT id FROM redrive_queues WHERE name = ?1
