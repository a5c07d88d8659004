-- Both are there: the one before came first, and the one after is new.
INSERT INTO redrive_edges (before, after, execution)
SELECT b.seq, a.seq, coalesce((SELECT p.seq FROM redrive_jobs AS p WHERE p.id = b.parent), 0)
FROM redrive_jobs AS b CROSS JOIN redrive_jobs AS a ON a.id = ?2 WHERE b.id = ?1
