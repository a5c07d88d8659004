-- What people and reporting tools may read: retry_schedules, retry_queue, queued_operations, failed_jobs, dead_letters.
-- Their columns stay as they are; tables, and the other views here, may change. Each view tells of all retained jobs in
-- the words of its readers. A filter on the status leaves only the tables that can have it, so that history costs a reader
-- of what waits nothing. There is no index on due times for readers alone: it would cost those who write a sixth.

CREATE INDEX dead_at ON redrive.dead (to_timestamp(finished_at::double precision / 1000));
CREATE INDEX jobs_external ON redrive.jobs (id) WHERE external;

CREATE FUNCTION redrive.instant(p_ms bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_timestamp(p_ms::double precision / 1000)
$$;

-- As the policies write it: 1h30m, 8.8s, 14d.
CREATE FUNCTION redrive.span_seconds(p_span text) RETURNS numeric LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT trim_scale(extract(epoch FROM p_span::interval))
$$;

-- A value of a JSON object as text, which cannot have a zero byte.
CREATE FUNCTION redrive.json_text(p_json text, p_name text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT replace(p_json, E'\\u0000', E'\\ufffd')::json ->> p_name
$$;

CREATE FUNCTION redrive.as_integer(p_count bigint) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT least(greatest(p_count, 0), 2147483647)::integer
$$;

-- Where each job stands. What a state's part cannot have is a constant, so that a filter on it leaves the part out.
-- Jobs come straight from their tables, and the conditions after: only so are the indexes of any use.
CREATE VIEW redrive.standing AS
SELECT s.*
FROM (
    SELECT 'waiting' AS state, l.seq, l.id, l.queue, l.due_at AS at, l.due_at AS next_at, l.attempt, l.failures,
           l.crashes, l.expires_at, NULL::uuid AS holder, NULL::bigint AS claimed_at, NULL::bigint AS finished_at,
           coalesce((SELECT a.ended_at FROM redrive.attempts AS a WHERE a.seq = l.seq ORDER BY a.attempt DESC LIMIT 1),
                    (SELECT j.created_at FROM redrive.jobs AS j WHERE j.id = l.id)) AS changed_at,
           CASE WHEN l.line IS NOT NULL THEN 'held' WHEN l.held THEN 'order' ELSE coalesce(l.reason, 'scheduled') END
               AS reason, NULL::text AS fingerprint,
           false AS cancelled
    FROM redrive.live AS l
    UNION ALL
    SELECT 'running', l.seq, l.id, l.queue, l.due_at, NULL, l.attempt, l.failures, l.crashes,
           l.expires_at, r.holder, r.claimed_at, NULL, r.claimed_at, NULL, NULL, false
    FROM redrive.running AS r JOIN redrive.live AS l ON l.seq = r.seq AND l.attempt = r.attempt
    UNION ALL
    SELECT 'dead', d.seq, d.id, d.queue, coalesce(d.started_at, d.finished_at), NULL, d.attempt, d.failures, d.crashes,
           NULL, NULL, NULL, d.finished_at, d.finished_at, d.why, d.fingerprint, false
    FROM redrive.dead AS d
    UNION ALL
    SELECT 'succeeded', d.seq, d.id, d.queue, coalesce(d.started_at, d.finished_at), NULL, d.attempt, d.failures,
           d.crashes, NULL, NULL, NULL, d.finished_at, d.finished_at, NULL, NULL, d.cancelled
    FROM redrive.done AS d
    UNION ALL
    SELECT 'cancelled', d.seq, d.id, d.queue, coalesce(d.started_at, d.finished_at), NULL, d.attempt, d.failures,
           d.crashes, NULL, NULL, NULL, d.finished_at, d.finished_at, NULL, NULL, d.cancelled
    FROM redrive.done AS d
) AS s
WHERE (s.state <> 'waiting' OR (s.seq, s.attempt) NOT IN (SELECT r.seq, r.attempt FROM redrive.running AS r))
  AND (s.state <> 'succeeded' OR NOT s.cancelled) AND (s.state <> 'cancelled' OR s.cancelled);

CREATE VIEW redrive.policy_terms AS
SELECT p.id, b.backoff ->> 'kind' AS kind, redrive.span_seconds(b.backoff ->> 'base') AS base_seconds,
       redrive.span_seconds(b.backoff ->> 'delay') AS delay_seconds,
       redrive.span_seconds(b.backoff ->> 'cap') AS cap_seconds, (b.backoff ->> 'factor')::numeric AS factor,
       b.backoff -> 'delays' AS delays, (p.body::json ->> 'maxAttempts')::bigint AS max_attempts,
       (p.body::json ->> 'maxRetries')::bigint AS max_retries,
       CASE WHEN b.backoff ->> 'then' = 'stop' THEN json_array_length(b.backoff -> 'delays') END AS listed
FROM redrive.policies AS p CROSS JOIN LATERAL (SELECT p.body::json -> 'backoff' AS backoff) AS b;

-- Everything the views for readers choose from.
CREATE VIEW redrive.overview AS
SELECT s.state, j.id, s.id AS stands, s.seq AS place, j.kind, q.name AS queue, j.priority, j.payload, j.labels,
       j.parent, j.unique_key, j.ordering_key, j.external, s.attempt, s.failures, s.crashes, s.reason,
       s.fingerprint, h.name AS holder,
       -- The first execution is a retry only if the first failure happened outside.
       CASE WHEN j.external THEN 0 ELSE 1 END AS first,
       least(coalesce(p.max_retries, p.max_attempts - CASE WHEN j.external THEN 0 ELSE 1 END), p.listed) AS retries_max,
       (SELECT redrive.json_text(a.failure, 'message') FROM redrive.attempts AS a
        WHERE a.seq = s.seq AND a.failure IS NOT NULL ORDER BY a.attempt DESC LIMIT 1) AS last_error,
       p.kind AS backoff, p.base_seconds, p.delay_seconds, p.cap_seconds, p.factor, p.delays,
       redrive.instant(s.at) AS at, redrive.instant(s.next_at) AS next_at, redrive.instant(s.claimed_at) AS claimed_at,
       redrive.instant(s.finished_at) AS finished_at, redrive.instant(coalesce(s.expires_at, j.deadline)) AS expires_at,
       redrive.instant(j.created_at) AS created_at, redrive.instant(s.changed_at) AS changed_at
FROM redrive.standing AS s
LEFT JOIN redrive.jobs AS j ON j.id = s.id AND j.seq = s.seq
LEFT JOIN redrive.queues AS q ON q.id = s.queue
LEFT JOIN redrive.policy_terms AS p ON p.id = j.policy
LEFT JOIN redrive.holders AS h ON h.id = s.holder;

CREATE VIEW redrive.retry_schedules AS
SELECT o.id,
       CASE WHEN redrive.json_text(o.labels, 'node_id') IS NULL THEN o.kind ELSE 'node_execution' END AS retry_type,
       coalesce(redrive.json_text(o.labels, 'target_id'), o.unique_key, o.id::text) AS target_id,
       coalesce(redrive.json_text(o.labels, 'execution_id'), o.parent::text, o.id::text) AS execution_id,
       redrive.json_text(o.labels, 'node_id') AS node_id,
       CASE o.backoff WHEN 'exponential' THEN 'exponential_backoff' WHEN 'fixed' THEN 'fixed_delay'
                      WHEN 'schedule' THEN 'custom' ELSE o.backoff END AS retry_strategy,
       redrive.as_integer(o.retries_max) AS max_attempts, redrive.as_integer(o.failures - o.first) AS current_attempt,
       coalesce(o.base_seconds, 0) AS initial_delay_seconds, o.delay_seconds, o.factor AS multiplier,
       o.cap_seconds AS max_delay_seconds,
       CASE WHEN o.delays IS NOT NULL THEN json_build_object('attempts', (
           SELECT json_agg(json_build_object('attempt', d.n, 'delay_seconds', redrive.span_seconds(d.span))
                           ORDER BY d.n)
           FROM json_array_elements_text(o.delays) WITH ORDINALITY AS d (span, n))) END AS custom_schedule,
       o.at AS scheduled_at,
       (SELECT redrive.instant(a.ended_at) FROM redrive.attempts AS a
        WHERE a.seq = o.place AND a.attempt > 0 ORDER BY a.attempt DESC LIMIT 1) AS last_retried_at,
       o.expires_at,
       CASE o.state WHEN 'waiting' THEN 'scheduled' WHEN 'running' THEN 'retrying' WHEN 'succeeded' THEN 'completed'
                    WHEN 'dead' THEN 'failed' ELSE 'cancelled' END AS status,
       o.holder AS locked_by, o.claimed_at AS locked_at, o.payload::json AS retry_context,
       (SELECT json_agg(json_build_object('attempt', a.attempt, 'timestamp', redrive.instant(a.ended_at),
                                          'error', redrive.json_text(a.failure, 'message')) ORDER BY a.attempt)
        FROM redrive.attempts AS a WHERE a.seq = o.place AND a.failure IS NOT NULL) AS error_history,
       o.created_at, o.changed_at AS updated_at, o.attempt + 1 AS version, o.queue, o.place
FROM redrive.overview AS o;

CREATE VIEW redrive.retry_queue AS
SELECT o.id, coalesce(o.unique_key, o.id::text) AS task_id, o.kind AS task_type, o.payload,
       redrive.as_integer(o.failures - o.first + CASE WHEN o.state IN ('running', 'succeeded') THEN 1 ELSE 0 END)
           AS attempt_count,
       redrive.as_integer(o.retries_max) AS max_attempts, o.last_error, o.next_at AS next_attempt_at, o.created_at,
       o.changed_at AS updated_at,
       CASE o.state WHEN 'waiting' THEN 'scheduled' WHEN 'running' THEN 'retrying' WHEN 'succeeded' THEN 'completed'
                    WHEN 'dead' THEN 'failed' ELSE 'cancelled' END AS status,
       o.queue, o.place
FROM redrive.overview AS o;

CREATE VIEW redrive.queued_operations AS
SELECT o.id, o.kind AS operation_type,
       CASE o.state WHEN 'waiting' THEN 'pending' WHEN 'running' THEN 'processing' WHEN 'succeeded' THEN 'completed'
                    WHEN 'dead' THEN 'failed' ELSE 'cancelled' END AS status,
       o.failures AS retry_count, redrive.as_integer(o.retries_max + o.first) AS max_retries, o.last_error,
       o.created_at,
       CASE WHEN o.state = 'succeeded' THEN o.finished_at END AS processed_at, o.payload, o.queue, o.ordering_key,
       o.place
FROM redrive.overview AS o;

-- Jobs that have failed and have not come right: with a time for the next retry, or with none if they need a person.
CREATE VIEW redrive.failed_jobs AS
SELECT o.id, o.kind, o.failures AS retry_count, o.next_at AS next_retry_at, o.last_error,
       CASE o.state WHEN 'running' THEN 'processing' ELSE 'failed' END AS status, o.reason, o.payload, o.created_at,
       o.changed_at AS updated_at, o.queue, o.place
FROM redrive.overview AS o
WHERE o.state IN ('waiting', 'running', 'dead')
  AND (o.state = 'dead' OR o.failures > 0 OR o.crashes > 0
       OR EXISTS (SELECT 1 FROM redrive.jobs AS j WHERE j.id = o.stands AND j.external));

-- Jobs that need a person.
CREATE VIEW redrive.dead_letters AS
SELECT o.id, o.kind, 'failed' AS status, o.failures AS retry_count, NULL::timestamptz AS next_retry_at, o.last_error,
       o.reason, o.fingerprint, o.attempt AS attempts, o.payload, o.created_at, o.finished_at AS failed_at,
       o.changed_at AS updated_at, o.queue, o.place
FROM redrive.overview AS o WHERE o.state = 'dead';
