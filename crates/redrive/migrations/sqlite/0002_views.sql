-- What people and reporting tools may read: redrive_retry_schedules, redrive_retry_queue, redrive_queued_operations,
-- redrive_failed_jobs, redrive_dead_letters. Their columns stay as they are; tables, and the other views here, may
-- change. Each view tells of all retained jobs in the words of its readers. Times are text in UTC that sorts and
-- compares as SQLite's own datetime() does.

CREATE VIEW redrive_running AS
SELECT json_extract(listed.value, '$[0]') AS seq, json_extract(listed.value, '$[1]') AS attempt, claims.holder,
       claims.claimed_at
FROM redrive_claims AS claims, json_each(claims.jobs) AS listed;

-- Where each job stands. What a state's part cannot have is a constant, so that a filter on it leaves the part out.
CREATE VIEW redrive_standing AS
SELECT 'waiting' AS state, l.seq, l.due_at AS at, l.due_at AS next_at, l.attempt, l.failures, l.crashes,
       l.expires_at, NULL AS holder, NULL AS claimed_at, NULL AS finished_at,
       coalesce((SELECT a.ended_at FROM redrive_attempts AS a WHERE a.seq = l.seq ORDER BY a.attempt DESC LIMIT 1),
                (SELECT j.created_at FROM redrive_jobs AS j WHERE j.seq = l.seq)) AS changed_at,
       CASE l.held WHEN 0 THEN coalesce(l.reason, 'scheduled') WHEN 1 THEN 'order' ELSE 'held' END AS reason, NULL AS fingerprint
FROM redrive_live AS l WHERE (l.seq, l.attempt) NOT IN (SELECT r.seq, r.attempt FROM redrive_running AS r)
UNION ALL
SELECT 'running', l.seq, l.due_at, NULL, l.attempt, l.failures, l.crashes, l.expires_at, r.holder, r.claimed_at,
       NULL, r.claimed_at, NULL, NULL
FROM redrive_running AS r CROSS JOIN redrive_live AS l ON l.seq = r.seq AND l.attempt = r.attempt
UNION ALL
SELECT 'dead', d.seq, coalesce(d.started_at, d.finished_at), NULL, d.attempt, d.failures, d.crashes, NULL, NULL,
       NULL, d.finished_at, d.finished_at, d.why, d.fingerprint
FROM redrive_done AS d WHERE d.state = 'dead'
UNION ALL
SELECT 'succeeded', d.seq, coalesce(d.started_at, d.finished_at), NULL, d.attempt, d.failures, d.crashes, NULL,
       NULL, NULL, d.finished_at, d.finished_at, NULL, NULL
FROM redrive_done AS d WHERE d.state = 'succeeded'
UNION ALL
SELECT 'cancelled', d.seq, coalesce(d.started_at, d.finished_at), NULL, d.attempt, d.failures, d.crashes, NULL,
       NULL, NULL, d.finished_at, d.finished_at, NULL, NULL
FROM redrive_done AS d WHERE d.state = 'cancelled';

-- Every length of time in a policy's back-off, in seconds. They are written as 1h30m, 8.8s, 14d: with each unit
-- replaced by its seconds they are lists in which a number and what it counts take turns.
CREATE VIEW redrive_policy_spans AS
SELECT l.id, l.path, l.position,
       (SELECT sum(n.value * u.value) FROM json_each(l.list) AS n JOIN json_each(l.list) AS u ON u.key = n.key + 1
        WHERE n.key % 2 = 0) AS seconds
FROM (SELECT p.id, s.fullkey AS path, s.key AS position,
             '[' || rtrim(replace(replace(replace(replace(replace(s.value, 'ms', ',0.001,'), 'd', ',86400,'),
                 'h', ',3600,'), 'm', ',60,'), 's', ',1,'), ',') || ']' AS list
      FROM redrive_policies AS p, json_tree(p.body, '$.backoff') AS s
      WHERE s.type = 'text' AND s.value GLOB '[0-9]*') AS l;

CREATE VIEW redrive_policy_terms AS
SELECT p.id, p.body ->> '$.backoff.kind' AS kind,
       (SELECT seconds FROM redrive_policy_spans AS s WHERE s.id = p.id AND path = '$.backoff.base') AS base_seconds,
       (SELECT seconds FROM redrive_policy_spans AS s WHERE s.id = p.id AND path = '$.backoff.delay') AS delay_seconds,
       (SELECT seconds FROM redrive_policy_spans AS s WHERE s.id = p.id AND path = '$.backoff.cap') AS cap_seconds,
       p.body ->> '$.backoff.factor' AS factor, p.body -> '$.backoff.delays' AS delays,
       p.body ->> '$.maxAttempts' AS max_attempts, p.body ->> '$.maxRetries' AS max_retries,
       CASE WHEN p.body ->> '$.backoff.then' = 'stop' THEN json_array_length(p.body, '$.backoff.delays') END AS listed
FROM redrive_policies AS p;

-- Everything the views for readers choose from.
CREATE VIEW redrive_overview AS
SELECT s.state, j.id, s.seq AS place, j.kind, q.name AS queue, j.priority, j.payload, j.labels, j.parent, j.unique_key,
       j.ordering_key, j.external, j.policy, s.attempt, s.failures, s.crashes, s.reason, s.fingerprint,
       h.name AS holder,
       -- The first execution is a retry only if the first failure happened outside.
       1 - j.external AS first,
       min(coalesce(p.max_retries, p.max_attempts - 1 + j.external, p.listed),
           coalesce(p.listed, p.max_retries, p.max_attempts - 1 + j.external)) AS retries_max,
       (SELECT a.failure ->> '$.message' FROM redrive_attempts AS a
        WHERE a.seq = s.seq AND a.failure IS NOT NULL ORDER BY a.attempt DESC LIMIT 1) AS last_error,
       p.kind AS backoff, p.base_seconds, p.delay_seconds, p.cap_seconds, p.factor, p.delays,
       strftime('%Y-%m-%d %H:%M:%f', s.at / 1000.0, 'unixepoch') AS at,
       strftime('%Y-%m-%d %H:%M:%f', s.next_at / 1000.0, 'unixepoch') AS next_at,
       strftime('%Y-%m-%d %H:%M:%f', s.claimed_at / 1000.0, 'unixepoch') AS claimed_at,
       strftime('%Y-%m-%d %H:%M:%f', s.finished_at / 1000.0, 'unixepoch') AS finished_at,
       strftime('%Y-%m-%d %H:%M:%f', coalesce(s.expires_at, j.deadline) / 1000.0, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%d %H:%M:%f', j.created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%d %H:%M:%f', s.changed_at / 1000.0, 'unixepoch') AS changed_at
FROM redrive_standing AS s
JOIN redrive_jobs AS j ON j.seq = s.seq
LEFT JOIN redrive_queues AS q ON q.id = j.queue
LEFT JOIN redrive_policy_terms AS p ON p.id = j.policy
LEFT JOIN redrive_holders AS h ON h.id = s.holder;

CREATE VIEW redrive_retry_schedules AS
SELECT o.id, CASE WHEN o.labels ->> '$.node_id' IS NULL THEN o.kind ELSE 'node_execution' END AS retry_type,
       coalesce(o.labels ->> '$.target_id', o.unique_key, o.id) AS target_id,
       coalesce(o.labels ->> '$.execution_id', o.parent, o.id) AS execution_id, o.labels ->> '$.node_id' AS node_id,
       CASE o.backoff WHEN 'exponential' THEN 'exponential_backoff' WHEN 'fixed' THEN 'fixed_delay'
                      WHEN 'schedule' THEN 'custom' ELSE o.backoff END AS retry_strategy,
       max(o.retries_max, 0) AS max_attempts, max(o.failures - o.first, 0) AS current_attempt,
       coalesce(o.base_seconds, 0) AS initial_delay_seconds, o.delay_seconds, o.factor AS multiplier,
       o.cap_seconds AS max_delay_seconds,
       CASE WHEN o.delays IS NOT NULL THEN json_object('attempts', json((
           SELECT json_group_array(json_object('attempt', d.position + 1, 'delay_seconds', d.seconds))
           FROM (SELECT s.position, s.seconds FROM redrive_policy_spans AS s
                 WHERE s.id = o.policy AND s.path GLOB '$.backoff.delays*' ORDER BY s.position) AS d)))
           END AS custom_schedule,
       o.at AS scheduled_at,
       (SELECT strftime('%Y-%m-%d %H:%M:%f', a.ended_at / 1000.0, 'unixepoch') FROM redrive_attempts AS a
        WHERE a.seq = o.place AND a.attempt > 0 ORDER BY a.attempt DESC LIMIT 1) AS last_retried_at,
       o.expires_at,
       CASE o.state WHEN 'waiting' THEN 'scheduled' WHEN 'running' THEN 'retrying' WHEN 'succeeded' THEN 'completed'
                    WHEN 'dead' THEN 'failed' ELSE 'cancelled' END AS status,
       o.holder AS locked_by, o.claimed_at AS locked_at, o.payload AS retry_context,
       (SELECT json_group_array(json(f.entry)) FROM (
           SELECT json_object('attempt', a.attempt, 'timestamp',
                              strftime('%Y-%m-%d %H:%M:%f', a.ended_at / 1000.0, 'unixepoch'),
                              'error', a.failure ->> '$.message') AS entry
           FROM redrive_attempts AS a WHERE a.seq = o.place AND a.failure IS NOT NULL ORDER BY a.attempt) AS f
        HAVING count(*) > 0) AS error_history,
       o.created_at, o.changed_at AS updated_at, o.attempt + 1 AS version, o.queue, o.place
FROM redrive_overview AS o;

CREATE VIEW redrive_retry_queue AS
SELECT o.id, coalesce(o.unique_key, o.id) AS task_id, o.kind AS task_type, o.payload,
       max(o.failures - o.first + CASE WHEN o.state IN ('running', 'succeeded') THEN 1 ELSE 0 END, 0) AS attempt_count,
       max(o.retries_max, 0) AS max_attempts, o.last_error, o.next_at AS next_attempt_at, o.created_at,
       o.changed_at AS updated_at,
       CASE o.state WHEN 'waiting' THEN 'scheduled' WHEN 'running' THEN 'retrying' WHEN 'succeeded' THEN 'completed'
                    WHEN 'dead' THEN 'failed' ELSE 'cancelled' END AS status,
       o.queue, o.place
FROM redrive_overview AS o;

CREATE VIEW redrive_queued_operations AS
SELECT o.id, o.kind AS operation_type,
       CASE o.state WHEN 'waiting' THEN 'pending' WHEN 'running' THEN 'processing' WHEN 'succeeded' THEN 'completed'
                    WHEN 'dead' THEN 'failed' ELSE 'cancelled' END AS status,
       o.failures AS retry_count, max(o.retries_max + o.first, 0) AS max_retries, o.last_error, o.created_at,
       CASE WHEN o.state = 'succeeded' THEN o.finished_at END AS processed_at, o.payload, o.queue, o.ordering_key,
       o.place
FROM redrive_overview AS o;

-- Jobs that have failed and have not come right: with a time for the next retry, or with none if they need a person.
CREATE VIEW redrive_failed_jobs AS
SELECT o.id, o.kind, o.failures AS retry_count, o.next_at AS next_retry_at, o.last_error,
       CASE o.state WHEN 'running' THEN 'processing' ELSE 'failed' END AS status, o.reason, o.payload, o.created_at,
       o.changed_at AS updated_at, o.queue, o.place
FROM redrive_overview AS o
WHERE o.state IN ('waiting', 'running', 'dead') AND (o.state = 'dead' OR o.failures > 0 OR o.crashes > 0 OR o.external);

-- Jobs that need a person.
CREATE VIEW redrive_dead_letters AS
SELECT o.id, o.kind, 'failed' AS status, o.failures AS retry_count, NULL AS next_retry_at, o.last_error,
       o.reason, o.fingerprint, o.attempt AS attempts, o.payload, o.created_at, o.finished_at AS failed_at,
       o.changed_at AS updated_at, o.queue, o.place
FROM redrive_overview AS o WHERE o.state = 'dead';
