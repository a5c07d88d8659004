INSERT INTO redrive_edits (seq, n, before)
VALUES (?1, (SELECT coalesce(max(n), 0) + 1 FROM redrive_edits WHERE seq = ?1), ?2)
