SELECT n, key, at, rule, what, job, message FROM redrive_notices WHERE n > ?1 ORDER BY n DESC LIMIT ?2
