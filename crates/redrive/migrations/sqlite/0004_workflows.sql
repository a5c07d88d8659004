-- Jobs that wait for others to succeed. A row goes when the first has succeeded; what has none left may begin. The job
-- that both belong to, or that the second is, is let go as well if the first ends badly.
CREATE TABLE redrive_edges (
    before    INTEGER NOT NULL,
    after     INTEGER NOT NULL,
    execution INTEGER NOT NULL,
    PRIMARY KEY (before, after)
) STRICT, WITHOUT ROWID;
CREATE INDEX redrive_edges_after ON redrive_edges (after);

-- Nodes of workflows are told from other jobs.
DROP VIEW redrive_retry_schedules;
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
