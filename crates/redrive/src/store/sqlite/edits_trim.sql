DELETE FROM redrive_edits WHERE seq = ?1 AND n <= (SELECT max(n) FROM redrive_edits WHERE seq = ?1) - ?2
