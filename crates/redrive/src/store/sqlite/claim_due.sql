-- Claiming writes no job row: the scan goes on behind the cursor, and skips what runs.
SELECT live.seq, live.due_at, live.attempt, live.failures, live.crashes, live.snoozes, live.holds,
       live.interruptions, live.generation, live.reason, live.last_delay_ms, live.held,
       jobs.id, jobs.kind, jobs.queue, jobs.priority, jobs.policy, jobs.created_at, jobs.checksum, jobs.external,
       jobs.unique_key, jobs.ordering_key, jobs.destination, jobs.parent, jobs.labels, jobs.deadline, jobs.start_by,
       jobs.timeout_ms, jobs.revived_at, jobs.payload
FROM redrive_live AS live INDEXED BY redrive_live_due
CROSS JOIN redrive_jobs AS jobs ON jobs.seq = live.seq
WHERE live.queue = ?1 AND live.priority = ?2 AND live.held = 0 AND live.due_at <= ?3
  AND (live.due_at, live.seq) > (?4, ?5)
ORDER BY live.due_at, live.seq
