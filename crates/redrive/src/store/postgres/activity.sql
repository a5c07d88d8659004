SELECT at, what, job, kind, queue, message FROM redrive.activity ORDER BY n DESC LIMIT $1
