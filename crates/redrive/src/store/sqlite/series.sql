SELECT ?1 + ((minute * 60000 - ?1) / ?3) * ?3 AS at, sum(enqueued), sum(succeeded), sum(failed), sum(dead)
FROM redrive_minutes
WHERE minute >= ?1 / 60000 AND minute < ?2 / 60000
GROUP BY 1 ORDER BY 1
