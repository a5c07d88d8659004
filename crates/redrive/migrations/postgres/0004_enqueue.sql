-- Jobs come in. Nothing here locks a row that others need: a user's transaction may stay open for as long as it likes.

-- Jobs with nothing special but perhaps a destination, all or none. Queues, bands and policies are known. An id that is there already fails with
-- unique_violation, and redrive.admit then finds out which.
CREATE FUNCTION redrive.put(
    p_id uuid[], p_queue integer[], p_policy integer[], p_created bigint[], p_run_at bigint[], p_checksum bigint[],
    p_priority smallint[], p_kind text[], p_payload text[], p_tally_queue integer[], p_tally jsonb[],
    p_destination text[] DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_seqs CONSTANT bigint[] := ARRAY(SELECT nextval('redrive.places') FROM generate_series(1, cardinality(p_id)));
BEGIN
    IF p_destination IS NULL THEN
        INSERT INTO redrive.jobs (id, seq, queue, policy, created_at, run_at, checksum, priority, kind, payload)
        SELECT * FROM unnest(p_id, v_seqs, p_queue, p_policy, p_created, p_run_at, p_checksum, p_priority, p_kind,
                             p_payload);
        INSERT INTO redrive.live (seq, id, due_at, queue, priority)
        SELECT * FROM unnest(v_seqs, p_id, p_run_at, p_queue, p_priority);
    ELSE
        INSERT INTO redrive.jobs (id, seq, queue, policy, created_at, run_at, checksum, priority, kind, payload,
                                  destination)
        SELECT * FROM unnest(p_id, v_seqs, p_queue, p_policy, p_created, p_run_at, p_checksum, p_priority, p_kind,
                             p_payload, p_destination);
        INSERT INTO redrive.live (seq, id, due_at, queue, priority, destination)
        SELECT * FROM unnest(v_seqs, p_id, p_run_at, p_queue, p_priority, p_destination);
    END IF;
    INSERT INTO redrive.tallies (queue, counts) SELECT * FROM unnest(p_tally_queue, p_tally);
END $$;

CREATE FUNCTION redrive.queue_id(p_name text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_id integer;
BEGIN
    SELECT q.id INTO v_id FROM redrive.queues AS q WHERE q.name = p_name;
    IF v_id IS NULL THEN
        INSERT INTO redrive.queues (name) VALUES (p_name) ON CONFLICT (name) DO NOTHING;
        SELECT q.id INTO v_id FROM redrive.queues AS q WHERE q.name = p_name;
    END IF;
    RETURN v_id;
END $$;

CREATE FUNCTION redrive.policy_id(p_version integer, p_body text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_id integer;
BEGIN
    FOR i IN 1 .. 2 LOOP
        SELECT p.id INTO v_id FROM redrive.policies AS p
        WHERE hashtextextended(p.body, 0) = hashtextextended(p_body, 0)
          AND hashtextextended(p.body, 1) = hashtextextended(p_body, 1);
        EXIT WHEN v_id IS NOT NULL;
        INSERT INTO redrive.policies (version, body) VALUES (p_version, p_body) ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN v_id;
END $$;

CREATE FUNCTION redrive.know_band(p_queue integer, p_priority smallint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM redrive.bands AS b WHERE b.queue = p_queue AND b.priority = p_priority) THEN
        INSERT INTO redrive.bands (queue, priority) VALUES (p_queue, p_priority);
    END IF;
END $$;

-- The row of where a job stands that was there before.
CREATE FUNCTION redrive.stand(p_seq bigint, p_job jsonb) RETURNS void LANGUAGE sql AS $$
    INSERT INTO redrive.live (seq, id, due_at, queue, attempt, failures, crashes, snoozes, holds, interruptions,
                              generation, priority, last_delay_ms, expires_at, reason, ordering_key, destination)
    SELECT p_seq, j.id, j.due_at, j.queue, j.attempt, j.failures, j.crashes, j.snoozes, j.holds, j.interruptions,
           j.generation, j.priority, j.last_delay_ms, j.expires_at, j.reason, j.ordering_key, j.destination
    FROM jsonb_to_record(p_job) AS j (
        id uuid, due_at bigint, queue integer, attempt integer, failures integer, crashes integer, snoozes integer,
        holds integer, interruptions integer, generation integer, priority smallint, last_delay_ms bigint,
        expires_at bigint, reason text, ordering_key text, destination text)
$$;

-- New jobs with their histories, each in its place.
CREATE FUNCTION redrive.write_jobs(p_seqs bigint[], p_jobs jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_band record;
BEGIN
    INSERT INTO redrive.jobs (id, queue, policy, created_at, run_at, checksum, priority, external, deadline, start_by,
                              timeout_ms, revived_at, parent, kind, unique_key, ordering_key, destination, labels, payload,
                              seq)
    SELECT j.id, j.queue, j.policy, j.created_at, j.due_at, j.checksum, j.priority, coalesce(j.external, false), j.deadline,
           j.start_by, j.timeout_ms, j.revived_at, j.parent, j.kind, j.unique_key, j.ordering_key, j.destination, j.labels,
           j.payload, j.seq
    FROM ROWS FROM (jsonb_to_recordset(p_jobs) AS (
        id uuid, queue integer, policy integer, created_at bigint, due_at bigint, checksum bigint, priority smallint,
        external boolean, deadline bigint, start_by bigint, timeout_ms bigint, revived_at bigint, parent uuid, kind text,
        unique_key text, ordering_key text, destination text, labels text, payload text), unnest(p_seqs)
    ) AS j (id, queue, policy, created_at, due_at, checksum, priority, external, deadline, start_by, timeout_ms, revived_at,
            parent, kind, unique_key, ordering_key, destination, labels, payload, seq);
    INSERT INTO redrive.live (id, due_at, queue, attempt, failures, crashes, snoozes, holds, interruptions, generation,
                              priority, last_delay_ms, expires_at, reason, ordering_key, destination, waits_for, seq)
    SELECT * FROM ROWS FROM (jsonb_to_recordset(p_jobs) AS (
        id uuid, due_at bigint, queue integer, attempt integer, failures integer, crashes integer, snoozes integer,
        holds integer, interruptions integer, generation integer, priority smallint, last_delay_ms bigint,
        expires_at bigint, reason text, ordering_key text, destination text, waits_for integer), unnest(p_seqs));
    INSERT INTO redrive.attempts (seq, started_at, ended_at, next_at, attempt, ending, failure, fingerprint, rule)
    SELECT j.seq, a.started_at, a.ended_at, a.next_at, a.attempt, a.ending, a.failure, a.fingerprint, a.rule
    FROM ROWS FROM (jsonb_to_recordset(p_jobs) AS (history jsonb), unnest(p_seqs)) AS j (history, seq)
    CROSS JOIN LATERAL jsonb_to_recordset(j.history) AS a (
        started_at bigint, ended_at bigint, next_at bigint, attempt integer, ending text, failure text,
        fingerprint text, rule text);
    FOR v_band IN SELECT DISTINCT b.queue, b.priority FROM jsonb_to_recordset(p_jobs) AS b (queue integer, priority smallint) LOOP
        PERFORM redrive.know_band(v_band.queue, v_band.priority);
    END LOOP;
END $$;

-- One job that is complete, as the engine or redrive.enqueue made it. Answers its id and what became of it.
CREATE FUNCTION redrive.admit_one(p_job jsonb, OUT job uuid, OUT how text) LANGUAGE plpgsql AS $$
DECLARE
    v_id CONSTANT uuid := (p_job ->> 'id')::uuid;
    v_key CONSTANT text := p_job ->> 'unique_key';
    v_queue CONSTANT integer := (p_job ->> 'queue')::integer;
    v_seq bigint;
    v_there record;
BEGIN
    job := v_id;
    IF EXISTS (SELECT 1 FROM redrive.jobs AS j WHERE j.id = v_id) THEN
        how := 'existing';
        -- Sent again because no answer came: the first commit may still be waiting for its standby. Whoever only reads
        -- does not wait; whoever writes does, and for everything before it.
        INSERT INTO redrive.tallies (queue, counts) VALUES (v_queue, '{}');
        RETURN;
    END IF;
    v_seq := nextval('redrive.places');
    WHILE v_key IS NOT NULL LOOP
        INSERT INTO redrive.keys (key, seq, id) VALUES (v_key, v_seq, v_id) ON CONFLICT (key) DO NOTHING;
        EXIT WHEN FOUND;
        SELECT k.seq, k.id INTO v_there FROM redrive.keys AS k WHERE k.key = v_key;
        CONTINUE WHEN NOT FOUND;
        job := v_there.id;
        CASE p_job ->> 'on_conflict'
        WHEN 'reject' THEN
            RAISE EXCEPTION 'key taken' USING ERRCODE = 'RD001', DETAIL = v_key;
        WHEN 'replace' THEN
            PERFORM redrive.replace(v_there.seq, v_key, p_job -> 'replacement');
            how := 'replaced';
        ELSE
            how := 'existing';
        END CASE;
        RETURN;
    END LOOP;
    how := 'created';
    PERFORM redrive.write_jobs(ARRAY[v_seq], jsonb_build_array(p_job));
END $$;

-- New content in the place of a job that waits. Decided elsewhere, from the job as it stood then: if that has changed,
-- nothing happens (40001), and it is decided again. Needs the lanes of both queues.
CREATE FUNCTION redrive.replace(p_seq bigint, p_key text, p_new jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_old record;
BEGIN
    SELECT l.queue, l.ordering_key, l.attempt, l.id INTO v_old FROM redrive.live AS l WHERE l.seq = p_seq FOR UPDATE;
    IF p_new IS NULL OR v_old IS NULL OR (p_new ->> 'id')::uuid <> v_old.id
       OR (p_new ->> 'attempt')::integer <> v_old.attempt OR (p_new ->> 'old_queue')::integer <> v_old.queue THEN
        RAISE EXCEPTION 'the job has changed' USING ERRCODE = '40001';
    END IF;
    IF EXISTS (SELECT 1 FROM redrive.running AS r
               WHERE p_seq BETWEEN r.lowest AND r.highest AND r.seq = p_seq AND r.attempt = v_old.attempt) THEN
        RAISE EXCEPTION 'key running' USING ERRCODE = 'RD002', DETAIL = p_key;
    END IF;
    UPDATE redrive.jobs AS j
    SET queue = n.queue, policy = n.policy, run_at = n.due_at, checksum = n.checksum, priority = n.priority,
        external = coalesce(n.external, false), deadline = n.deadline, start_by = n.start_by, timeout_ms = n.timeout_ms,
        revived_at = n.revived_at, parent = n.parent, kind = n.kind, unique_key = n.unique_key,
        ordering_key = n.ordering_key, destination = n.destination, labels = n.labels, payload = n.payload
    FROM jsonb_to_record(p_new) AS n (
        queue integer, policy integer, due_at bigint, checksum bigint, priority smallint, external boolean,
        deadline bigint, start_by bigint, timeout_ms bigint, revived_at bigint, parent uuid, kind text, unique_key text,
        ordering_key text, destination text, labels text, payload text)
    WHERE j.id = v_old.id;
    DELETE FROM redrive.live AS l WHERE l.seq = p_seq;
    IF v_old.ordering_key IS NOT NULL THEN
        PERFORM redrive.let_next_go(v_old.queue, v_old.ordering_key);
    END IF;
    PERFORM redrive.stand(p_seq, p_new);
    PERFORM redrive.know_band((p_new ->> 'queue')::integer, (p_new ->> 'priority')::smallint);
END $$;

-- Jobs of any kind, all or none. A limit is a queue, how many it may hold, and the ids that want in.
CREATE FUNCTION redrive.admit(p_lanes integer[], p_limits jsonb, p_jobs jsonb) RETURNS TABLE (job uuid, how text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_limit record;  v_live bigint;  v_new bigint;  v_job jsonb;  v_created integer[] := '{}';  v_ids uuid[];
BEGIN
    IF cardinality(p_lanes) > 0 THEN
        PERFORM redrive.lock_lanes(p_lanes);
    END IF;
    FOR v_limit IN
        SELECT * FROM jsonb_to_recordset(p_limits) AS l (queue integer, name text, capacity bigint, ids uuid[])
        ORDER BY l.queue
    LOOP
        -- One at a time, or two would each take the last place.
        PERFORM pg_advisory_xact_lock(1380209239, v_limit.queue);
        SELECT count(*) INTO v_live
        FROM (SELECT 1 FROM redrive.live AS l WHERE l.queue = v_limit.queue LIMIT v_limit.capacity + 1) AS live;
        IF v_live + cardinality(v_limit.ids) > v_limit.capacity THEN
            -- What is there already takes no place twice.
            SELECT count(*) INTO v_new FROM unnest(v_limit.ids) AS i (id)
            WHERE NOT EXISTS (SELECT 1 FROM redrive.jobs AS j WHERE j.id = i.id);
            IF v_new > 0 AND v_live + v_new > v_limit.capacity THEN
                RAISE EXCEPTION 'queue full' USING ERRCODE = 'RD003', DETAIL = v_limit.name, HINT = v_limit.capacity;
            END IF;
        END IF;
    END LOOP;
    -- What nobody can have before, be it a key or an id, is written at once.
    v_ids := ARRAY(SELECT j.id FROM jsonb_to_recordset(p_jobs) AS j (id uuid, unique_key text) WHERE j.unique_key IS NULL);
    IF cardinality(v_ids) = jsonb_array_length(p_jobs)
       AND NOT EXISTS (SELECT 1 FROM redrive.jobs AS j WHERE j.id = ANY (v_ids)) THEN
        PERFORM redrive.write_jobs(
            ARRAY(SELECT nextval('redrive.places') FROM generate_series(1, cardinality(v_ids))), p_jobs);
        v_created := ARRAY(SELECT j.queue FROM jsonb_to_recordset(p_jobs) AS j (queue integer));
        RETURN QUERY SELECT i, 'created' FROM unnest(v_ids) AS i;
    ELSE
        FOR v_job IN SELECT * FROM jsonb_array_elements(p_jobs) LOOP
            SELECT a.job, a.how INTO job, how FROM redrive.admit_one(v_job) AS a;
            RETURN NEXT;
            IF how = 'created' THEN
                v_created := v_created || (v_job ->> 'queue')::integer;
            END IF;
        END LOOP;
    END IF;
    INSERT INTO redrive.tallies (queue, counts)
    SELECT c.queue, jsonb_build_object('enqueued', count(*)) FROM unnest(v_created) AS c (queue) GROUP BY c.queue;
END $$;

-- The same, but the second time under the same key, what was answered the first time. Whoever comes second waits for
-- whoever came first.
CREATE FUNCTION redrive.admit_once(
    p_lanes integer[], p_limits jsonb, p_jobs jsonb, p_key text, p_digest text, p_now bigint
) RETURNS TABLE (job uuid, how text) LANGUAGE plpgsql AS $$
DECLARE
    v_call record;  v_answer jsonb;
BEGIN
    INSERT INTO redrive.calls (key, digest, at) VALUES (p_key, p_digest, p_now) ON CONFLICT (key) DO NOTHING;
    IF NOT FOUND THEN
        SELECT c.digest, c.answer INTO v_call FROM redrive.calls AS c WHERE c.key = p_key;
        IF v_call.digest IS DISTINCT FROM p_digest THEN
            RAISE EXCEPTION 'another request' USING ERRCODE = 'RD004', DETAIL = p_key;
        END IF;
        RETURN QUERY SELECT a.job, a.how FROM jsonb_to_recordset(v_call.answer) AS a (job uuid, how text);
        RETURN;
    END IF;
    SELECT jsonb_agg(jsonb_build_object('job', a.job, 'how', a.how)) INTO v_answer
    FROM redrive.admit(p_lanes, p_limits, p_jobs) AS a;
    UPDATE redrive.calls AS c SET answer = v_answer WHERE c.key = p_key;
    RETURN QUERY SELECT a.job, a.how FROM jsonb_to_recordset(v_answer) AS a (job uuid, how text);
END $$;
