SELECT at, what, job, kind, queue, message FROM redrive_activity ORDER BY n DESC LIMIT ?1
