-- Which process serves this connection, and since when.
SELECT pg_backend_pid(),
       (SELECT (extract(epoch FROM clock_timestamp() - a.backend_start) * 1000)::bigint
        FROM pg_stat_activity AS a WHERE a.pid = pg_backend_pid())
