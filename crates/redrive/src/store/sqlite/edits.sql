SELECT e.before FROM redrive_edits AS e JOIN redrive_jobs AS j ON j.seq = e.seq WHERE j.id = ?1 ORDER BY e.n
