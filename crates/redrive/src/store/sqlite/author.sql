SELECT author FROM redrive_jobs WHERE seq = ?1
