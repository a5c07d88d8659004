SELECT j.author, d.output FROM redrive.jobs AS j LEFT JOIN redrive.done AS d ON d.seq = $2 WHERE j.id = $1
