-- Counted no further than to the limit: nobody wants to wait for the exact number of too many.
SELECT (SELECT count(*) FROM (SELECT FROM redrive.jobs_other LIMIT $1) AS j),
       (SELECT count(*) FROM (SELECT FROM redrive.done_other LIMIT $1) AS d),
       (SELECT count(*) FROM (SELECT FROM redrive.attempts_other LIMIT $1) AS a),
       (SELECT count(*) FROM (SELECT FROM redrive.tallies LIMIT $1) AS t)
