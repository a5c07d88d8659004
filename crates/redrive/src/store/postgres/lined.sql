SELECT count(*) FROM redrive.live AS l WHERE l.destination = $1 AND l.line IS NOT NULL
