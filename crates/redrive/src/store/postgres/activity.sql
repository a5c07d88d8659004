SELECT l.at, l.what, l.job, l.kind, l.queue, l.message
FROM (SELECT *, sum(lines) OVER (ORDER BY n DESC) - lines AS newer FROM redrive.activity) AS a
CROSS JOIN LATERAL unnest(a.at, a.what, a.job, a.kind, a.queue, a.message)
    WITH ORDINALITY AS l (at, what, job, kind, queue, message, place)
WHERE a.newer < $1
ORDER BY a.n DESC, l.place DESC
LIMIT $1
