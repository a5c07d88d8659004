UPDATE redrive_jobs SET author = ?2 WHERE seq = ?1
