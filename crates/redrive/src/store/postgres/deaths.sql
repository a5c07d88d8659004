-- How many of each listed group died in each part of the time: $1 is when the first part begins, $2 how long one is.
SELECT listed.place, (d.finished_at - $1) / $2, count(*)
FROM redrive.dead AS d
JOIN unnest($3) WITH ORDINALITY AS listed (fingerprint, place) ON listed.fingerprint = coalesce(d.fingerprint, '')
GROUP BY 1, 2
