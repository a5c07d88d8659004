SELECT redrive.make_day((clock_timestamp() AT TIME ZONE 'UTC')::date + ahead) FROM generate_series(0, $1) AS ahead
