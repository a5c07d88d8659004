-- What a person asked for. Decided from the job as it was read: if it has moved since, it is answered as changed, and
-- decided again. Answers the places of the jobs to which it was done, and of those that have changed.
CREATE FUNCTION redrive.steer(
    p_lanes integer[], p_jobs jsonb, p_tally jsonb, OUT done bigint[], OUT changed bigint[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_job record;  v_answer text;
BEGIN
    PERFORM redrive.lock_lanes(p_lanes);
    done := '{}';
    changed := '{}';
    FOR v_job IN
        SELECT * FROM jsonb_to_recordset(p_jobs) AS j (
            seq bigint, id uuid, queue integer, state text, attempt integer, to_state text, at bigint, reason text,
            started_at bigint, key text, ordering_key text, stand jsonb, deadline bigint, start_by bigint,
            revived_at bigint, note jsonb)
    LOOP
        v_answer := CASE v_job.to_state
            WHEN 'cancelled' THEN redrive.cancel_one(v_job.seq, v_job.id, v_job.state, v_job.attempt, v_job.at,
                                                     v_job.started_at, v_job.key, v_job.ordering_key)
            WHEN 'again' THEN redrive.take_back_one(v_job.seq, v_job.id, v_job.attempt, v_job.at, v_job.started_at,
                                                    v_job.deadline, v_job.reason)
            WHEN 'waiting' THEN redrive.hasten_one(v_job.seq, v_job.attempt, v_job.at, v_job.reason)
            WHEN 'back' THEN redrive.bring_back_one(v_job.seq, v_job.id, v_job.attempt, v_job.key, v_job.stand,
                                                    v_job.deadline, v_job.start_by, v_job.revived_at)
            WHEN 'forgotten' THEN redrive.forget_one(v_job.seq, v_job.id)
        END;
        IF v_answer = 'changed' THEN
            changed := changed || v_job.seq;
        ELSIF v_answer = 'done' THEN
            done := done || v_job.seq;
            IF p_tally IS NOT NULL THEN
                INSERT INTO redrive.tallies (queue, counts) VALUES (v_job.queue, p_tally);
            END IF;
            IF v_job.note IS NOT NULL THEN
                INSERT INTO redrive.activity (at, job, what, kind, queue, message)
                SELECT ARRAY[n.at], ARRAY[n.job], ARRAY[n.what], ARRAY[n.kind], ARRAY[n.queue], ARRAY[n.message]
                FROM jsonb_to_record(v_job.note) AS n (at bigint, job uuid, what text, kind text, queue text, message text);
            END IF;
        END IF;
    END LOOP;
END $$;

-- Whether a job runs at this attempt, for whoever has its lane and takes it to be waiting. What waits for others may begin
-- with an ending, without the lane: whoever is about to let it has its row, is waited for, and is seen then.
CREATE FUNCTION redrive.has_begun(p_seq bigint, p_attempt integer) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM 1 FROM redrive.live AS l WHERE l.seq = p_seq FOR NO KEY UPDATE;
    RETURN EXISTS (SELECT 1 FROM redrive.running AS r
                   WHERE p_seq BETWEEN r.lowest AND r.highest AND r.seq = p_seq AND r.attempt = p_attempt);
END $$;

-- Cancelling a running job takes its lease away: its holder learns of it at its next renewal.
CREATE FUNCTION redrive.cancel_one(
    p_seq bigint, p_id uuid, p_state text, p_attempt integer, p_at bigint, p_started bigint, p_key text, p_order text
) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
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
    ELSIF redrive.has_begun(p_seq, p_attempt) THEN
        RETURN 'changed';
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

-- The same, for a job that is to run again.
CREATE FUNCTION redrive.take_back_one(
    p_seq bigint, p_id uuid, p_attempt integer, p_at bigint, p_started bigint, p_expires bigint, p_reason text
) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_claim uuid;
BEGIN
    SELECT r.claim INTO v_claim FROM redrive.running AS r
    WHERE p_seq BETWEEN r.lowest AND r.highest AND r.seq = p_seq AND r.attempt = p_attempt;
    PERFORM 1 FROM redrive.claims AS c WHERE c.id = v_claim FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'changed';
    END IF;
    UPDATE redrive.live AS l
    SET attempt = p_attempt + 1, interruptions = l.interruptions + 1, due_at = p_at, expires_at = p_expires, reason = p_reason
    WHERE l.seq = p_seq AND l.attempt = p_attempt;
    IF NOT FOUND THEN
        RETURN 'changed';
    END IF;
    UPDATE redrive.claims AS c SET lost = c.lost || p_seq, lost_jobs = c.lost_jobs || p_id WHERE c.id = v_claim;
    INSERT INTO redrive.attempts (seq, attempt, started_at, ended_at, ending, next_at)
    VALUES (p_seq, p_attempt + 1, p_started, p_at, 'interrupted', p_at);
    RETURN 'done';
END $$;

CREATE FUNCTION redrive.hasten_one(p_seq bigint, p_attempt integer, p_at bigint, p_reason text) RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE redrive.live AS l SET due_at = p_at, reason = p_reason, line = NULL
    WHERE l.seq = p_seq AND l.attempt = p_attempt AND NOT redrive.has_begun(p_seq, p_attempt);
    RETURN CASE WHEN FOUND THEN 'done' ELSE 'changed' END;
END $$;

CREATE FUNCTION redrive.bring_back_one(
    p_seq bigint, p_id uuid, p_attempt integer, p_key text, p_stand jsonb, p_deadline bigint, p_start_by bigint,
    p_revived_at bigint
) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_there boolean;  v_edges bigint;
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
    -- It waits for what it waited for. The rows are locked, or one of them would go while this is not yet seen.
    PERFORM 1 FROM redrive.edges AS e WHERE e.after = p_seq FOR UPDATE;
    GET DIAGNOSTICS v_edges = ROW_COUNT;
    IF v_edges > 0 THEN
        UPDATE redrive.live AS l SET waits_for = v_edges WHERE l.seq = p_seq;
        -- But for the job they all belong to, which sees for itself.
        IF p_stand ->> 'parent' IS NOT NULL THEN
            UPDATE redrive.live AS l SET due_at = redrive.never(), reason = 'dependency' WHERE l.seq = p_seq;
        END IF;
    END IF;
    RETURN 'done';
END $$;

CREATE FUNCTION redrive.forget_one(p_seq bigint, p_id uuid) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
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
    WITH gone AS (
        DELETE FROM redrive.edges AS e WHERE e.before = p_seq OR e.after = p_seq RETURNING e.after
    )
    UPDATE redrive.live AS l SET waits_for = l.waits_for - 1 FROM gone WHERE l.seq = gone.after;
    DELETE FROM redrive.jobs AS j WHERE j.id = p_id;
    RETURN 'done';
END $$;

-- Forgets finished jobs one by one: those that ended before these times.
CREATE FUNCTION redrive.forget(p_succeeded bigint, p_cancelled bigint, p_dead bigint, p_limit integer) RETURNS bigint
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
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
