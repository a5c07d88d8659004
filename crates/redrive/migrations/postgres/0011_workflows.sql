-- Jobs that wait for others to succeed. A row goes when the first has succeeded; what has none left may begin. The job
-- that both belong to, or that the second is, is let go as well if the first ends badly.
CREATE TABLE redrive.edges (
    before    bigint NOT NULL,
    after     bigint NOT NULL,
    execution bigint NOT NULL,
    PRIMARY KEY (before, after)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX edges_after ON redrive.edges (after);

-- When a job is due that waits for others: not by itself.
CREATE FUNCTION redrive.never() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 253402207200000
$$;

-- Jobs of which some wait for others of the same call, all or none; once under a key, if there is one.
CREATE FUNCTION redrive.admit_tied(
    p_lanes integer[], p_limits jsonb, p_jobs jsonb, p_key text, p_digest text, p_now bigint, p_edges jsonb
) RETURNS TABLE (job uuid, how text) LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_answer jsonb;
BEGIN
    IF p_key IS NULL THEN
        SELECT jsonb_agg(jsonb_build_object('job', a.job, 'how', a.how)) INTO v_answer
        FROM redrive.admit(p_lanes, p_limits, p_jobs) AS a;
    ELSE
        SELECT jsonb_agg(jsonb_build_object('job', a.job, 'how', a.how)) INTO v_answer
        FROM redrive.admit_once(p_lanes, p_limits, p_jobs, p_key, p_digest, p_now) AS a;
    END IF;
    -- Those that are new. What was sent before is tied, and may have been let go since.
    INSERT INTO redrive.edges (before, after, execution)
    SELECT b.seq, a.seq, coalesce(p.seq, 0)
    FROM jsonb_to_recordset(p_edges) AS e (before uuid, after uuid)
    JOIN jsonb_to_recordset(v_answer) AS n (job uuid, how text) ON n.job = e.after AND n.how = 'created'
    JOIN redrive.jobs AS b ON b.id = e.before
    JOIN redrive.jobs AS a ON a.id = e.after
    LEFT JOIN redrive.jobs AS p ON p.id = b.parent;
    RETURN QUERY SELECT a.job, a.how FROM jsonb_to_recordset(v_answer) AS a (job uuid, how text);
END $$;

-- After endings of jobs that belong to another one. A success lets those go that wait for nothing else. What ends badly
-- keeps them waiting, and lets the job go that it belongs to, if that does nothing but wait.
--
-- Two that the same job waits for may end at once. It is locked before anything else, several in the order of their
-- places; and only a later statement, with a snapshot of its own, looks at what is left. Whoever comes second sees that
-- the first one has gone.
CREATE FUNCTION redrive.let_members_go(p_well bigint[], p_well_at bigint[], p_badly bigint[], p_badly_at bigint[])
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_after bigint[];  v_at bigint[];
BEGIN
    IF cardinality(p_well) > 0 THEN
        PERFORM 1 FROM redrive.live AS l
        WHERE l.seq IN (SELECT e.after FROM redrive.edges AS e WHERE e.before = ANY (p_well))
        ORDER BY l.seq FOR UPDATE OF l;
        WITH gone AS (
            DELETE FROM redrive.edges AS e USING unnest(p_well, p_well_at) AS w (seq, at) WHERE e.before = w.seq
            RETURNING e.after, w.at
        ), latest AS (
            SELECT g.after, max(g.at) AS at FROM gone AS g GROUP BY g.after
        )
        SELECT array_agg(l.after), array_agg(l.at) INTO v_after, v_at FROM latest AS l;
        UPDATE redrive.live AS l SET due_at = least(l.due_at, g.at), reason = NULL
        FROM unnest(v_after, v_at) AS g (seq, at)
        WHERE l.seq = g.seq AND NOT EXISTS (SELECT 1 FROM redrive.edges AS e WHERE e.after = g.seq);
    END IF;
    IF cardinality(p_badly) > 0 THEN
        UPDATE redrive.live AS l SET due_at = least(l.due_at, x.at), reason = NULL
        FROM (SELECT e.execution, max(b.at) AS at
              FROM unnest(p_badly, p_badly_at) AS b (seq, at) JOIN redrive.edges AS e ON e.before = b.seq
              GROUP BY e.execution) AS x
        WHERE l.seq = x.execution AND l.reason IN ('dependency', 'snoozed');
    END IF;
END $$;

-- How those of these jobs ended that are final, by number.
CREATE FUNCTION redrive.ended(p_ids uuid[]) RETURNS TABLE (n bigint, state text, output text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN QUERY
    SELECT i.n, CASE WHEN d.cancelled THEN 'cancelled' ELSE 'succeeded' END, d.output
    FROM unnest(p_ids) WITH ORDINALITY AS i (id, n)
    JOIN redrive.jobs AS j ON j.id = i.id JOIN redrive.done AS d ON d.seq = j.seq
    UNION ALL
    SELECT i.n, 'dead', NULL
    FROM unnest(p_ids) WITH ORDINALITY AS i (id, n)
    JOIN redrive.jobs AS j ON j.id = i.id JOIN redrive.dead AS d ON d.seq = j.seq;
END $$;

-- Whether the job it belongs to has not come to its end, and may still ask for it.
CREATE FUNCTION redrive.is_needed(p_id uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM redrive.jobs AS j JOIN redrive.jobs AS p ON p.id = j.parent
        WHERE j.id = p_id
          AND (EXISTS (SELECT 1 FROM redrive.live AS l WHERE l.seq = p.seq)
               OR EXISTS (SELECT 1 FROM redrive.dead AS d WHERE d.seq = p.seq)))
$$;

-- Cancelling a running job takes its lease away: its holder learns of it at its next renewal.
CREATE OR REPLACE FUNCTION redrive.cancel_one(
    p_seq bigint, p_id uuid, p_state text, p_attempt integer, p_at bigint, p_started bigint, p_key text, p_order text
) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_claim uuid;  v_live redrive.live;  v_ran boolean;
BEGIN
    SELECT r.claim INTO v_claim FROM redrive.running AS r
    WHERE p_seq BETWEEN r.lowest AND r.highest AND r.seq = p_seq AND r.attempt = p_attempt;
    IF v_claim IS NOT NULL THEN
        -- The claim before the job, as a settlement does it.
        PERFORM 1 FROM redrive.claims AS c WHERE c.id = v_claim FOR UPDATE;
        IF NOT FOUND THEN
            RETURN 'changed';
        END IF;
    END IF;
    v_ran := p_state = 'running';
    DELETE FROM redrive.live AS l WHERE l.seq = p_seq AND l.attempt = p_attempt AND v_ran = (v_claim IS NOT NULL)
    RETURNING * INTO v_live;
    IF NOT FOUND THEN
        RETURN 'changed';
    END IF;
    UPDATE redrive.claims AS c SET lost = c.lost || p_seq, lost_jobs = c.lost_jobs || p_id WHERE c.id = v_claim;
    INSERT INTO redrive.done (seq, id, queue, started_at, finished_at, attempt, failures, crashes, snoozes, holds,
                              interruptions, generation, cancelled)
    VALUES (p_seq, v_live.id, v_live.queue, CASE WHEN v_ran THEN p_started END, p_at, p_attempt + v_ran::integer,
            v_live.failures, v_live.crashes, v_live.snoozes, v_live.holds, v_live.interruptions, v_live.generation, true);
    IF v_ran THEN
        INSERT INTO redrive.attempts (seq, attempt, started_at, ended_at, ending)
        VALUES (p_seq, p_attempt + 1, p_started, p_at, 'cancelled');
        DELETE FROM redrive.attempts AS a WHERE a.seq = p_seq AND a.attempt > 10 AND a.attempt <= p_attempt + 1 - 90;
    END IF;
    IF p_key IS NOT NULL THEN
        DELETE FROM redrive.keys AS k WHERE k.key = p_key AND k.seq = p_seq;
    END IF;
    IF p_order IS NOT NULL THEN
        PERFORM redrive.let_next_go(v_live.queue, p_order);
    END IF;
    PERFORM redrive.let_members_go('{}', '{}', ARRAY[p_seq], ARRAY[p_at]);
    RETURN 'done';
END $$;

CREATE OR REPLACE FUNCTION redrive.bring_back_one(
    p_seq bigint, p_id uuid, p_attempt integer, p_key text, p_stand jsonb, p_deadline bigint, p_start_by bigint,
    p_revived_at bigint
) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_there boolean;
BEGIN
    IF p_key IS NOT NULL THEN
        -- A dead job does not hold its key, so another may have it by now.
        INSERT INTO redrive.keys (key, seq, id) VALUES (p_key, p_seq, p_id) ON CONFLICT (key) DO NOTHING;
        IF NOT FOUND THEN
            RETURN 'taken';
        END IF;
    END IF;
    DELETE FROM redrive.dead AS d WHERE d.seq = p_seq AND d.attempt = p_attempt;
    v_there := FOUND;
    IF NOT v_there THEN
        DELETE FROM redrive.done AS d WHERE d.seq = p_seq AND d.attempt = p_attempt AND d.cancelled;
        v_there := FOUND;
    END IF;
    IF NOT v_there THEN
        IF p_key IS NOT NULL THEN
            DELETE FROM redrive.keys AS k WHERE k.key = p_key AND k.seq = p_seq;
        END IF;
        RETURN 'changed';
    END IF;
    UPDATE redrive.jobs AS j SET deadline = p_deadline, start_by = p_start_by, revived_at = p_revived_at WHERE j.id = p_id;
    PERFORM redrive.stand(p_seq, p_stand);
    IF p_stand ->> 'parent' IS NOT NULL THEN
        -- It waits for what it waited for. The rows are locked, or one of them would go while this is not yet seen.
        PERFORM 1 FROM redrive.edges AS e WHERE e.after = p_seq FOR UPDATE;
        IF FOUND THEN
            UPDATE redrive.live AS l SET due_at = redrive.never(), reason = 'dependency' WHERE l.seq = p_seq;
        END IF;
    END IF;
    RETURN 'done';
END $$;

CREATE OR REPLACE FUNCTION redrive.forget_one(p_seq bigint, p_id uuid) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_there boolean;
BEGIN
    DELETE FROM redrive.dead AS d WHERE d.seq = p_seq;
    v_there := FOUND;
    IF NOT v_there THEN
        DELETE FROM redrive.done AS d WHERE d.seq = p_seq;
        v_there := FOUND;
    END IF;
    IF NOT v_there THEN
        RETURN 'changed';
    END IF;
    DELETE FROM redrive.attempts AS a WHERE a.seq = p_seq;
    DELETE FROM redrive.edges AS e WHERE e.before = p_seq OR e.after = p_seq;
    DELETE FROM redrive.jobs AS j WHERE j.id = p_id;
    RETURN 'done';
END $$;

-- Forgets finished jobs one by one: those that ended before these times, but for what somebody may still ask for.
CREATE OR REPLACE FUNCTION redrive.forget(p_succeeded bigint, p_cancelled bigint, p_dead bigint, p_limit integer) RETURNS bigint
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_row record;  v_count bigint := 0;
BEGIN
    FOR v_row IN
        SELECT d.seq, d.id FROM redrive.done AS d
        WHERE d.finished_at <= greatest(p_succeeded, p_cancelled)
          AND d.finished_at <= CASE WHEN d.cancelled THEN p_cancelled ELSE p_succeeded END
          AND NOT redrive.is_needed(d.id)
        UNION ALL
        SELECT d.seq, d.id FROM redrive.dead AS d WHERE d.finished_at <= p_dead AND NOT redrive.is_needed(d.id)
        LIMIT p_limit
    LOOP
        PERFORM redrive.forget_one(v_row.seq, v_row.id);
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END $$;

-- Drops the tables of a day. What must be kept (a job that still waits or needs a person, what it may ask for, and their
-- history) moves to the table for all others first. Answers how many jobs were forgotten.
CREATE OR REPLACE FUNCTION redrive.drop_day(p_day date, p_succeeded bigint, p_cancelled bigint) RETURNS bigint
LANGUAGE plpgsql
SET jit = off
AS $$
DECLARE
    v_name CONSTANT text := to_char(p_day, 'YYYYMMDD');
    v_table text;
    v_kept text;
    v_before bigint;
    v_after bigint;
BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    EXECUTE format('LOCK TABLE redrive.done_%1$s, redrive.attempts_%1$s, redrive.jobs_%1$s IN SHARE ROW EXCLUSIVE MODE', v_name);
    EXECUTE format('SELECT count(*) FROM redrive.jobs_%s', v_name) INTO v_before;
    FOREACH v_table IN ARRAY ARRAY['done', 'attempts', 'jobs'] LOOP
        v_kept := CASE v_table
            WHEN 'done' THEN format('d.finished_at > CASE WHEN d.cancelled THEN %s ELSE %s END OR redrive.is_needed(d.id)',
                                    p_cancelled, p_succeeded)
            ELSE 'EXISTS (SELECT 1 FROM redrive.live AS l WHERE l.seq = d.seq)
                  OR EXISTS (SELECT 1 FROM redrive.dead AS l WHERE l.seq = d.seq)
                  OR EXISTS (SELECT 1 FROM redrive.done AS l WHERE l.seq = d.seq)'
        END;
        EXECUTE format('CREATE TEMPORARY TABLE redrive_kept ON COMMIT DROP AS SELECT d.* FROM redrive.%s_%s AS d WHERE %s',
                       v_table, v_name, v_kept);
        EXECUTE format('DROP TABLE redrive.%s_%s', v_table, v_name);
        EXECUTE format('INSERT INTO redrive.%s SELECT * FROM redrive_kept', v_table);
        IF v_table = 'jobs' THEN
            SELECT count(*) INTO v_after FROM redrive_kept;
        END IF;
        DROP TABLE redrive_kept;
    END LOOP;
    DELETE FROM redrive.edges AS e
    WHERE NOT EXISTS (SELECT 1 FROM redrive.live AS l WHERE l.seq IN (e.after, e.execution))
      AND NOT EXISTS (SELECT 1 FROM redrive.dead AS l WHERE l.seq IN (e.after, e.execution))
      AND NOT EXISTS (SELECT 1 FROM redrive.done AS l WHERE l.seq IN (e.after, e.execution));
    RETURN v_before - v_after;
END $$;

-- Nodes of workflows are told from other jobs.
CREATE OR REPLACE VIEW redrive.retry_schedules AS
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
