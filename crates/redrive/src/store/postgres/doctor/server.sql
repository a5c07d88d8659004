-- Everything about the server that needs no table of ours.
SELECT current_setting('server_version'),
       current_setting('server_version_num')::integer / 10000,
       pg_is_in_recovery(),
       current_setting('default_transaction_read_only') = 'on',
       (SELECT coalesce(sum(d.numbackends), 0)::bigint FROM pg_stat_database AS d),
       current_setting('max_connections')::bigint,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
