SELECT s.name FROM pg_settings AS s
WHERE s.name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'autovacuum', 'track_counts') AND s.setting = 'off'
ORDER BY s.name
