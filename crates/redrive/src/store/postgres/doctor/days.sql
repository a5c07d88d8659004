-- The tables that should be there for today and tomorrow, and are not; by UTC, as days are.
SELECT ahead, 'redrive.' || name || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + ahead, '_YYYYMMDD')
FROM generate_series(0, 1) AS ahead CROSS JOIN unnest(ARRAY['jobs', 'done', 'attempts']) AS name
WHERE to_regclass('redrive.' || name || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + ahead, '_YYYYMMDD')) IS NULL
ORDER BY 1, 2
