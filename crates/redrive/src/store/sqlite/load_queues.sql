SELECT id, name, paused FROM redrive_queues ORDER BY id
