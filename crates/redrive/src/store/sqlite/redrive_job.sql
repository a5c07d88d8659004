UPDATE redrive_jobs SET deadline = ?2, start_by = ?3, revived_at = ?4 WHERE seq = ?1
