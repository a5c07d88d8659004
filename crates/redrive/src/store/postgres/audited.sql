SELECT n, id, at, who, token, what, target, job, result, detail FROM redrive.audit
WHERE n < $1 AND ($3::uuid IS NULL OR job = $3) ORDER BY n DESC LIMIT $2
