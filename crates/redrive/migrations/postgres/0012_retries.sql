-- What is to be tried again, by when: whoever looks at that need not read all that waits. A job that has not been tried is
-- in it only if it failed elsewhere, or if somebody asked for it; so what succeeds at once never touches it.
CREATE INDEX live_retries ON redrive.live (due_at, seq)
WHERE attempt > 0 OR reason IN ('backoff', 'retry_after', 'by_hand');
