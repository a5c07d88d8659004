SELECT count(*)
FROM (SELECT 'enqueued' AS name, count(*) AS counted FROM redrive_jobs
      UNION ALL SELECT 'succeeded', count(*) FROM redrive_done WHERE state = 'succeeded'
      UNION ALL SELECT 'dead', count(*) FROM redrive_done WHERE state = 'dead'
      UNION ALL SELECT 'failures', count(*) FROM redrive_attempts WHERE ending = 'failed'
      UNION ALL SELECT 'crashes', count(*) FROM redrive_attempts WHERE ending = 'crashed') AS rows
WHERE rows.counted <> coalesce((SELECT sum(value) FROM redrive_stats AS stats WHERE stats.name = rows.name), 0)
