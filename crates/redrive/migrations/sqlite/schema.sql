CREATE VIEW redrive_dead_letters AS
SELECT o.id, o.kind, 'failed' AS status, o.failures AS retry_count, NULL AS next_retry_at, o.last_error,
       o.reason, o.fingerprint, o.attempt AS attempts, o.payload, o.created_at, o.finished_at AS failed_at,
       o.changed_at AS updated_at, o.queue, o.place
FROM redrive_overview AS o WHERE o.state = 'dead';

CREATE VIEW redrive_failed_jobs AS
SELECT o.id, o.kind, o.failures AS retry_count, o.next_at AS next_retry_at, o.last_error,
       CASE o.state WHEN 'running' THEN 'processing' ELSE 'failed' END AS status, o.reason, o.payload, o.created_at,
       o.changed_at AS updated_at, o.queue, o.place
FROM redrive_overview AS o
WHERE o.state IN ('waiting', 'running', 'dead') AND (o.state = 'dead' OR o.failures > 0 OR o.crashes > 0 OR o.external);

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

CREATE VIEW redrive_queued_operations AS
SELECT o.id, o.kind AS operation_type,
       CASE o.state WHEN 'waiting' THEN 'pending' WHEN 'running' THEN 'processing' WHEN 'succeeded' THEN 'completed'
                    WHEN 'dead' THEN 'failed' ELSE 'cancelled' END AS status,
       o.failures AS retry_count, max(o.retries_max + o.first, 0) AS max_retries, o.last_error, o.created_at,
       CASE WHEN o.state = 'succeeded' THEN o.finished_at END AS processed_at, o.payload, o.queue, o.ordering_key,
       o.place
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

CREATE VIEW redrive_running AS
SELECT json_extract(listed.value, '$[0]') AS seq, json_extract(listed.value, '$[1]') AS attempt, claims.holder,
       claims.claimed_at
FROM redrive_claims AS claims, json_each(claims.jobs) AS listed;

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

CREATE TABLE redrive_activity (
    n       INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    what    TEXT NOT NULL,
    job     TEXT NOT NULL,
    kind    TEXT NOT NULL,
    queue   TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;

CREATE TABLE redrive_attempts (
    seq         INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER NOT NULL,
    ending      TEXT NOT NULL,
    failure     TEXT,
    fingerprint TEXT,
    rule        TEXT,
    next_at     INTEGER,
    PRIMARY KEY (seq, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_audit (
    n      INTEGER PRIMARY KEY AUTOINCREMENT,
    id     TEXT NOT NULL UNIQUE,
    at     INTEGER NOT NULL,
    who    TEXT NOT NULL,
    token  TEXT,
    what   TEXT NOT NULL,
    target TEXT NOT NULL,
    job    TEXT,
    result TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;

CREATE TABLE redrive_calls (
    key    TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL,
    answer TEXT NOT NULL,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_claims (
    id         TEXT NOT NULL PRIMARY KEY,
    holder     TEXT NOT NULL REFERENCES redrive_holders (id),
    claimed_at INTEGER NOT NULL,
    jobs       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_done (
    seq           INTEGER PRIMARY KEY,
    state         TEXT NOT NULL,
    why           TEXT,
    started_at    INTEGER,
    finished_at   INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    snoozes       INTEGER NOT NULL,
    holds         INTEGER NOT NULL,
    interruptions INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    fingerprint   TEXT,
    output        TEXT
) STRICT;

CREATE TABLE redrive_edges (
    before    INTEGER NOT NULL,
    after     INTEGER NOT NULL,
    execution INTEGER NOT NULL,
    PRIMARY KEY (before, after)
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_edits (
    seq    INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    before TEXT NOT NULL,
    PRIMARY KEY (seq, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_gates (
    name     TEXT NOT NULL PRIMARY KEY,
    state    TEXT NOT NULL,
    next_us  INTEGER NOT NULL,
    retry_us INTEGER NOT NULL,
    sent     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_holders (
    id       TEXT NOT NULL PRIMARY KEY,
    name     TEXT NOT NULL,
    -- Whether it is no part of the process that has the file, and lives on when that has died.
    outlives INTEGER NOT NULL DEFAULT 0,
    until    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_jobs (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    kind         TEXT NOT NULL,
    queue        INTEGER NOT NULL REFERENCES redrive_queues (id),
    priority     INTEGER NOT NULL,
    policy       INTEGER NOT NULL REFERENCES redrive_policies (id),
    created_at   INTEGER NOT NULL,
    checksum     INTEGER NOT NULL,
    external     INTEGER NOT NULL DEFAULT 0,
    unique_key   TEXT,
    ordering_key TEXT,
    destination  TEXT,
    parent       TEXT,
    labels       TEXT,
    deadline     INTEGER,
    start_by     INTEGER,
    timeout_ms   INTEGER,
    revived_at   INTEGER,
    payload      TEXT NOT NULL
, author TEXT) STRICT;

CREATE TABLE redrive_keys (
    key TEXT NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_live (
    seq           INTEGER PRIMARY KEY,
    queue         INTEGER NOT NULL,
    priority      INTEGER NOT NULL,
    due_at        INTEGER NOT NULL,
    -- 0 in the due scan, 1 behind another of its ordering key, 2 and 3 in its destination's line: first attempt, retry.
    held          INTEGER NOT NULL DEFAULT 0,
    attempt       INTEGER NOT NULL DEFAULT 0,
    failures      INTEGER NOT NULL DEFAULT 0,
    crashes       INTEGER NOT NULL DEFAULT 0,
    snoozes       INTEGER NOT NULL DEFAULT 0,
    holds         INTEGER NOT NULL DEFAULT 0,
    interruptions INTEGER NOT NULL DEFAULT 0,
    generation    INTEGER NOT NULL DEFAULT 0,
    reason        TEXT,
    last_delay_ms INTEGER,
    -- How long it was due and stood in its destination's line, before attempts that have begun.
    in_line_ms    INTEGER NOT NULL DEFAULT 0,
    expires_at    INTEGER,
    ordering_key  TEXT,
    destination   TEXT
, kind TEXT NOT NULL DEFAULT '') STRICT;

CREATE TABLE redrive_meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_minutes (
    minute    INTEGER PRIMARY KEY,
    enqueued  INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    dead      INTEGER NOT NULL
) STRICT;

CREATE TABLE redrive_notices (
    n       INTEGER PRIMARY KEY AUTOINCREMENT,
    key     TEXT NOT NULL UNIQUE,
    at      INTEGER NOT NULL,
    rule    TEXT NOT NULL,
    what    TEXT NOT NULL,
    job     TEXT,
    message TEXT NOT NULL
) STRICT;

CREATE TABLE redrive_policies (
    id      INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    body    TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE redrive_queues (
    id     INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE,
    paused INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE redrive_records (
    shelf TEXT NOT NULL,
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (shelf, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_stats (
    queue INTEGER NOT NULL,
    name  TEXT NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX redrive_audit_job ON redrive_audit (job, n) WHERE job IS NOT NULL;

CREATE INDEX redrive_done_dead ON redrive_done (seq) WHERE state = 'dead';

CREATE INDEX redrive_done_fingerprint ON redrive_done (fingerprint, seq) WHERE fingerprint IS NOT NULL;

CREATE INDEX redrive_edges_after ON redrive_edges (after);

CREATE INDEX redrive_jobs_parent ON redrive_jobs (parent) WHERE parent IS NOT NULL;

CREATE INDEX redrive_live_due ON redrive_live (queue, priority, due_at) WHERE held = 0;

CREATE INDEX redrive_live_expires ON redrive_live (queue, expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX redrive_live_line ON redrive_live (destination, queue, held, priority DESC, due_at, seq) WHERE held >= 2;

CREATE INDEX redrive_live_order ON redrive_live (queue, ordering_key, seq) WHERE ordering_key IS NOT NULL;

CREATE INDEX redrive_live_retries ON redrive_live (due_at, seq)
WHERE attempt > 0 OR reason = 'backoff' OR reason = 'retry_after' OR reason = 'by_hand';
