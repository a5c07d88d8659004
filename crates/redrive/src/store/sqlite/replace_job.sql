UPDATE redrive_jobs
SET kind = ?2, queue = ?3, priority = ?4, policy = ?5, created_at = ?6, checksum = ?7, external = ?8, unique_key = ?9,
    ordering_key = ?10, destination = ?11, parent = ?12, labels = ?13, deadline = ?14, start_by = ?15,
    timeout_ms = ?16, revived_at = ?17, payload = ?18
WHERE id = ?1
