SELECT kind FROM redrive_jobs WHERE seq = ?1
