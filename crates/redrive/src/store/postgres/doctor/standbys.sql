-- To a role that may not see them, connected standbys are rows without a state.
SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit') IN ('off', 'local'),
       count(*), count(r.sync_state), count(*) FILTER (WHERE r.sync_state IN ('sync', 'quorum'))
FROM pg_stat_replication AS r
