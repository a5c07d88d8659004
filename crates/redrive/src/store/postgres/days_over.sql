-- Days before today of which even the last millisecond is over.
SELECT day::text FROM redrive.days() AS day
WHERE redrive.day_start(day + 1) <= $1 AND day < (clock_timestamp() AT TIME ZONE 'UTC')::date
