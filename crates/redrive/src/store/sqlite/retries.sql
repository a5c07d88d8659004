-- The condition is that of the index, to the letter.
SELECT live.due_at, live.seq, jobs.id
FROM redrive_live AS live INDEXED BY redrive_live_retries CROSS JOIN redrive_jobs AS jobs ON jobs.seq = live.seq
WHERE (live.attempt > 0 OR live.reason = 'backoff' OR live.reason = 'retry_after' OR live.reason = 'by_hand')
  AND (live.due_at, live.seq) > (?1, ?2)
ORDER BY live.due_at, live.seq LIMIT ?3
