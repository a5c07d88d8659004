-- Whether the job it belongs to has not come to its end, and may still ask for it.
SELECT 1
FROM redrive_jobs AS j CROSS JOIN redrive_jobs AS p ON p.id = j.parent
WHERE j.seq = ?1
  AND (EXISTS (SELECT 1 FROM redrive_live AS l WHERE l.seq = p.seq)
       OR EXISTS (SELECT 1 FROM redrive_done AS d WHERE d.seq = p.seq AND d.state = 'dead'))
