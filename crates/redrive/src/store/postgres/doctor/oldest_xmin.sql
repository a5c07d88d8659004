-- Whoever keeps dead rows of this database from being cleared away, the oldest first. Sessions in other databases do
-- not; replicas that report back, and slots, do wherever they are. Only a prepared transaction's age in time is known
-- beside a session's.
SELECT 'session', a.pid::text, coalesce(nullif(a.application_name, ''), 'unnamed'), coalesce(a.usename, '?')::text,
       coalesce(a.state, a.backend_type, '?'),
       (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint AS ms,
       greatest(age(a.backend_xid), age(a.backend_xmin))::bigint AS transactions
FROM pg_stat_activity AS a
WHERE (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL) AND a.pid <> pg_backend_pid()
  AND a.backend_type <> 'autovacuum worker' AND (a.datname = current_database() OR a.datname IS NULL)
UNION ALL
SELECT 'prepared', p.gid, '', p.owner::text, 'prepared',
       (extract(epoch FROM clock_timestamp() - p.prepared) * 1000)::bigint, age(p.transaction)::bigint
FROM pg_prepared_xacts AS p WHERE p.database = current_database()
UNION ALL
SELECT 'slot', s.slot_name::text, '', '', CASE WHEN s.active THEN 'active' ELSE 'inactive' END,
       NULL, age(s.xmin)::bigint
FROM pg_replication_slots AS s WHERE s.xmin IS NOT NULL
ORDER BY transactions DESC, ms DESC NULLS LAST LIMIT 1
