-- How many jobs wait or run in each queue at each priority: counted when the store is opened, kept in memory then.
SELECT queue, priority, count(*) FROM redrive_live GROUP BY queue, priority
