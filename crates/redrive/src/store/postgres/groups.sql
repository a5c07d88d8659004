-- The newest one by its place: ids of other processes may be dated a little ahead.
SELECT d.fingerprint, count(*), (array_agg(d.id ORDER BY d.seq DESC))[1], min(d.finished_at), max(d.finished_at)
FROM redrive.dead AS d GROUP BY d.fingerprint ORDER BY 2 DESC, d.fingerprint COLLATE "C" NULLS FIRST LIMIT $1
