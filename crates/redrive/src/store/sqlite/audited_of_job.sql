SELECT n, id, at, who, token, what, target, job, result, detail FROM redrive_audit
WHERE n < ?1 AND job = ?3 ORDER BY n DESC LIMIT ?2
