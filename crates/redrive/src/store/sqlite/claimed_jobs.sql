-- What claimed jobs are, read after the claim and on another thread. Their sequence numbers come as a JSON array, so
-- that one cursor goes from one to the next.
SELECT jobs.seq, jobs.id, jobs.kind, jobs.queue, jobs.priority, jobs.policy, jobs.created_at, jobs.checksum,
       jobs.external, jobs.unique_key, jobs.ordering_key, jobs.destination, jobs.parent, jobs.labels, jobs.deadline,
       jobs.start_by, jobs.timeout_ms, jobs.revived_at, jobs.payload
FROM json_each(?1) AS listed CROSS JOIN redrive_jobs AS jobs ON jobs.seq = listed.value
