-- Out of time, held or not, due or not: they are claimed in order to be buried.
SELECT live.seq, live.due_at, live.attempt, live.failures, live.crashes, live.snoozes, live.holds,
       live.interruptions, live.generation, live.reason, live.last_delay_ms, live.held,
       jobs.id, jobs.kind, jobs.queue, jobs.priority, jobs.policy, jobs.created_at, jobs.checksum, jobs.external,
       jobs.unique_key, jobs.ordering_key, jobs.destination, jobs.parent, jobs.labels, jobs.deadline, jobs.start_by,
       jobs.timeout_ms, jobs.revived_at, jobs.payload
FROM redrive_live AS live INDEXED BY redrive_live_expires
CROSS JOIN redrive_jobs AS jobs ON jobs.seq = live.seq
WHERE live.queue = ?1 AND live.expires_at IS NOT NULL AND live.expires_at <= ?2
ORDER BY live.priority DESC, live.due_at, live.seq
