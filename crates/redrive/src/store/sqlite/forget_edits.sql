DELETE FROM redrive_edits WHERE seq = ?1
