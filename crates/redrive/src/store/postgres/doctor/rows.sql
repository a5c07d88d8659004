-- The tables that change all the time: what is dead in them, when they were last cleared, and how big they are.
SELECT s.relname::text, s.n_live_tup, s.n_dead_tup,
       (extract(epoch FROM clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum)) * 1000)::bigint,
       pg_table_size(s.relid), pg_indexes_size(s.relid)
FROM pg_stat_user_tables AS s
WHERE s.schemaname = 'redrive' AND s.relname IN ('live', 'claims', 'holders', 'keys', 'queues', 'tallies')
ORDER BY s.n_dead_tup DESC, s.relname
