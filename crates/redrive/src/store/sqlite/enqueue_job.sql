INSERT INTO redrive_jobs (id, kind, queue, priority, policy, created_at, checksum, external, unique_key,
                          ordering_key, destination, parent, labels, deadline, start_by, timeout_ms, revived_at,
                          payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)
-- The same job sent again, because the first answer was lost, is the same job.
ON CONFLICT (id) DO NOTHING
