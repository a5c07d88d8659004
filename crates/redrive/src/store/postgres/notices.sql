SELECT * FROM (
    SELECT n, key, at, rule, what, job, message FROM redrive.notices WHERE n > $1 ORDER BY n DESC LIMIT $2
) AS newest ORDER BY n
