-- As 0006 has it, with the reasons one by one: of a list, a table is made for every row that comes or goes, which took as
-- long as all the rest of it.
DROP INDEX redrive_live_retries;
CREATE INDEX redrive_live_retries ON redrive_live (due_at, seq)
WHERE attempt > 0 OR reason = 'backoff' OR reason = 'retry_after' OR reason = 'by_hand';
