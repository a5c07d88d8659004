SELECT 1 FROM redrive_jobs WHERE id = ?1
