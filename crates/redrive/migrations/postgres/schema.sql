CREATE SCHEMA redrive;

CREATE FUNCTION redrive.admit(p_lanes integer[], p_limits jsonb, p_jobs jsonb) RETURNS TABLE(job uuid, how text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
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

CREATE FUNCTION redrive.admit_in_transaction(p_job jsonb, OUT job uuid, OUT how text) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_id CONSTANT uuid := (p_job ->> 'id')::uuid;
    v_capacity CONSTANT bigint := (p_job ->> 'capacity')::bigint;
    v_queue CONSTANT integer := redrive.queue_id(p_job ->> 'queue');
    v_policy CONSTANT integer := redrive.policy_id((p_job ->> 'policy_version')::integer, p_job ->> 'policy');
    v_live bigint;
BEGIN
    job := v_id;
    IF v_capacity IS NOT NULL THEN
        -- Not one at a time, as among engines: that lock would be kept until this transaction ends.
        SELECT count(*) INTO v_live
        FROM (SELECT 1 FROM redrive.live AS l WHERE l.queue = v_queue LIMIT v_capacity) AS live;
        IF v_live >= v_capacity AND NOT EXISTS (SELECT 1 FROM redrive.jobs AS j WHERE j.id = v_id) THEN
            how := 'full';
            RETURN;
        END IF;
    END IF;
    SELECT a.job, a.how INTO job, how
    FROM redrive.admit_one(
        p_job || jsonb_build_object('queue', v_queue, 'policy', v_policy, 'on_conflict', 'ignore')) AS a;
    IF how = 'existing' AND job <> v_id AND p_job ->> 'on_conflict' <> 'ignore' THEN
        -- To replace it one would have to lock its lane, and to know that it does not run at commit.
        how := 'taken';
    ELSIF how = 'created' THEN
        INSERT INTO redrive.tallies (queue, counts) VALUES (v_queue, '{"enqueued": 1}');
        -- At commit, and once for all jobs of a transaction.
        PERFORM pg_notify('redrive', '');
    END IF;
END $$;

CREATE FUNCTION redrive.admit_once(p_lanes integer[], p_limits jsonb, p_jobs jsonb, p_key text, p_digest text, p_now bigint) RETURNS TABLE(job uuid, how text)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION redrive.admit_one(p_job jsonb, OUT job uuid, OUT how text) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION redrive.admit_tied(p_lanes integer[], p_limits jsonb, p_jobs jsonb, p_key text, p_digest text, p_now bigint, p_edges jsonb) RETURNS TABLE(job uuid, how text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
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

CREATE FUNCTION redrive.as_integer(p_count bigint) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT least(greatest(p_count, 0), 2147483647)::integer
$$;

CREATE FUNCTION redrive.backoff_mistakes(p_backoff jsonb) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    AS $$
DECLARE
    c_fields CONSTANT jsonb := '{"immediate": [], "fixed": ["delay"], "linear": ["base", "step"],
        "exponential": ["base", "factor", "exponentStart"], "fibonacci": ["base"], "schedule": ["delays", "then"]}';
    c_never CONSTANT text := 'every retry would run at once; write at least 1ms, or kind "immediate"';
    v_wrong text[];  v_known text[];  v_kind text;  v_name text;  v_delays jsonb;  v_first numeric;
BEGIN
    IF p_backoff IS NULL THEN
        RETURN '{}';
    ELSIF jsonb_typeof(p_backoff) <> 'object' THEN
        RETURN ARRAY[format('policy.backoff is %s; write an object, {"kind": …}', p_backoff)];
    END IF;
    v_kind := coalesce(p_backoff ->> 'kind', 'exponential');
    IF NOT c_fields ? v_kind THEN
        RETURN redrive.word_mistakes('policy.backoff.kind', p_backoff -> 'kind', '{immediate,fixed,linear,exponential,fibonacci,schedule}');
    END IF;
    v_known := ARRAY(SELECT jsonb_array_elements_text(c_fields -> v_kind));
    v_wrong := redrive.unknown_fields('policy.backoff.', p_backoff, '{kind}'::text[] || v_known || '{cap}'::text[])
        || redrive.span_mistakes('policy.backoff.cap', p_backoff -> 'cap', NULL);
    FOREACH v_name IN ARRAY '{delay,base,step}'::text[] LOOP
        v_wrong := v_wrong || redrive.span_mistakes('policy.backoff.' || v_name, p_backoff -> v_name,
                                                    CASE WHEN v_name <> 'step' THEN c_never END);
    END LOOP;
    IF v_kind = 'fixed' AND NOT p_backoff ? 'delay' THEN
        v_wrong := v_wrong || 'policy.backoff.delay is needed for kind "fixed"; write how long, such as "5m"'::text;
    END IF;
    IF p_backoff ? 'factor' AND (jsonb_typeof(p_backoff -> 'factor') <> 'number'
                                 OR (p_backoff ->> 'factor')::numeric NOT BETWEEN 1 AND 1000) THEN
        v_wrong := v_wrong || format('policy.backoff.factor is %s: write a number from 1 to 1000, such as 2', p_backoff -> 'factor');
    END IF;
    IF p_backoff ? 'exponentStart' AND p_backoff -> 'exponentStart' NOT IN ('0', '1') THEN
        v_wrong := v_wrong || format('policy.backoff.exponentStart is %s: write 0 (the first delay is the base) or 1 (base × factor)',
                                     p_backoff -> 'exponentStart');
    END IF;
    IF v_kind = 'schedule' THEN
        v_wrong := v_wrong || redrive.word_mistakes('policy.backoff.then', p_backoff -> 'then', '{repeat_last,stop}');
        v_delays := coalesce(p_backoff -> 'delays', '[]');
        IF jsonb_typeof(v_delays) <> 'array' THEN
            v_wrong := v_wrong || format('policy.backoff.delays: %s is not a list; write […]', v_delays);
        ELSIF jsonb_array_length(v_delays) NOT BETWEEN 1 AND 1000 THEN
            v_wrong := v_wrong || format('policy.backoff.delays has %s entries; write at least one delay and at most 1000, such as '
                                         '["7d", "14d"]', jsonb_array_length(v_delays));
        ELSE
            FOR i IN 0 .. jsonb_array_length(v_delays) - 1 LOOP
                v_wrong := v_wrong || redrive.span_mistakes(format('policy.backoff.delays[%s]', i), v_delays -> i, NULL);
            END LOOP;
            IF (SELECT max((redrive.read_span(d)).ms) FROM jsonb_array_elements(v_delays) AS d) = 0 AND v_wrong = '{}' THEN
                v_wrong := v_wrong || ('policy.backoff.delays are all 0s: ' || c_never);
            END IF;
        END IF;
    ELSIF v_kind IN ('linear', 'exponential', 'fibonacci') AND p_backoff ? 'cap' AND v_wrong = '{}' THEN
        v_first := (redrive.read_span(coalesce(p_backoff -> 'base', '"1s"'))).ms;
        IF v_kind = 'exponential' AND p_backoff -> 'exponentStart' = '1' THEN
            v_first := v_first * coalesce((p_backoff ->> 'factor')::numeric, 2);
        END IF;
        IF (redrive.read_span(p_backoff -> 'cap')).ms < v_first THEN
            v_wrong := v_wrong || format('policy.backoff.cap is %s, below the first delay; write a cap of at least that, or kind "fixed"',
                                         p_backoff -> 'cap');
        END IF;
    END IF;
    RETURN v_wrong;
END $$;

CREATE FUNCTION redrive.begin_members(p_after bigint[], p_at bigint[], p_gone integer[], p_holder uuid, p_claim uuid, p_kinds text[], p_queues integer[], p_bands smallint[], p_places integer[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    -- What runs out of time later than this is nobody else's to claim meanwhile.
    c_long CONSTANT bigint := 60000;
    v_seqs bigint[] := '{}';  v_ids uuid[] := '{}';  v_dues bigint[] := '{}';  v_taken record;
BEGIN
    -- Kept from being ended while this claim is made.
    PERFORM 1 FROM redrive.holders AS h WHERE h.id = p_holder FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN v_seqs;
    END IF;
    FOR i IN 1 .. cardinality(p_queues) LOOP
        CONTINUE WHEN EXISTS (SELECT 1 FROM redrive.queues AS q WHERE q.id = p_queues[i] AND q.paused);
        WITH taken AS (
            SELECT l.seq, l.id, g.at
            FROM unnest(p_after, p_at, p_gone) AS g (seq, at, gone) JOIN redrive.live AS l ON l.seq = g.seq
            WHERE l.waits_for <= g.gone AND l.queue = p_queues[i] AND l.priority = p_bands[i]
              AND l.attempt = 0 AND l.generation = 0 AND l.reason = 'dependency'
              AND l.destination IS NULL AND coalesce(l.expires_at > g.at + c_long, true)
              AND (p_kinds IS NULL OR EXISTS (SELECT 1 FROM redrive.jobs AS j WHERE j.id = l.id AND j.kind = ANY (p_kinds)))
            LIMIT p_places[i] FOR NO KEY UPDATE OF l
        )
        SELECT array_agg(t.seq) AS seqs, array_agg(t.id) AS ids, array_agg(t.at) AS dues INTO v_taken FROM taken AS t;
        v_seqs := v_seqs || v_taken.seqs;
        v_ids := v_ids || v_taken.ids;
        v_dues := v_dues || v_taken.dues;
    END LOOP;
    IF cardinality(v_seqs) > 0 THEN
        INSERT INTO redrive.claims (id, holder, claimed_at, lowest, highest, unsettled, ordered, seqs, attempts, ids, dues)
        SELECT p_claim, p_holder, max(b.due), min(b.seq), max(b.seq), count(*), false, v_seqs,
               array_fill(0, ARRAY[cardinality(v_seqs)]), v_ids, v_dues
        FROM unnest(v_seqs, v_dues) AS b (seq, due);
    END IF;
    RETURN v_seqs;
END $$;

CREATE FUNCTION redrive.bring_back_one(p_seq bigint, p_id uuid, p_attempt integer, p_key text, p_stand jsonb, p_deadline bigint, p_start_by bigint, p_revived_at bigint) RETURNS text
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
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

CREATE FUNCTION redrive.bucket_room(p_mark bigint, p_floor bigint, p_until bigint, p_cost bigint) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN p_cost = 0 THEN 2147483647
                WHEN greatest(p_mark, p_floor) > p_until THEN 0
                ELSE least((p_until - greatest(p_mark, p_floor)) / p_cost + 1, 2147483647)::integer END
$$;

CREATE FUNCTION redrive.calls_to(p_name text) RETURNS integer
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
    SELECT count(*)::integer
    FROM redrive.claims AS c CROSS JOIN LATERAL unnest(c.seqs, c.attempts) AS listed (seq, attempt)
    JOIN redrive.live AS l ON l.seq = listed.seq AND l.attempt = listed.attempt
    WHERE l.destination = p_name
$$;

CREATE FUNCTION redrive.cancel_one(p_seq bigint, p_id uuid, p_state text, p_attempt integer, p_at bigint, p_started bigint, p_key text, p_order text) RETURNS text
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
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

CREATE FUNCTION redrive.claim(p_holder uuid, p_batch uuid, p_alone uuid, p_queues text[], p_limits integer[], p_let_pass boolean[], p_suspect boolean, p_now bigint, p_kinds text[], p_limited text[], p_gates jsonb, OUT answer text, OUT next_due bigint, OUT alone_at integer, OUT gates text, OUT moved text[], OUT seqs bigint[], OUT attempts integer[], OUT dues bigint[], OUT alone bigint, OUT alone_attempt integer) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    -- What the cursor has passed may still be committed by someone slow: it stays this far behind. All before it is
    -- looked through again four times a second if there is room left, and once if not; for at most a tenth of the time.
    c_late   CONSTANT bigint := 100;
    -- It is not moved for so few jobs, nor by so little time: to pass over them again costs less.
    c_few    CONSTANT integer := 16;
    c_near   CONSTANT bigint := 50;
    c_held   CONSTANT integer := 1000;
    -- While an answer is on its way the lane is locked, and a frozen client does not take it: it must fit into a socket.
    c_short  CONSTANT integer := 100;
    v_ordered boolean := false;  v_alone_ordered boolean := false;
    -- As long as all of them are fresh, as are the due times.
    v_ids uuid[] := '{}';
    v_suspect boolean := p_suspect;
    v_kinds CONSTANT text := coalesce(array_to_string(p_kinds, E'\x1f'), '');
    v_queue record;  v_room integer;  v_band smallint;  v_found record;  v_row record;
    v_at bigint[];  v_end bigint[];  v_turn bigint[];  v_moved bigint[];  v_running text[];  v_cursor record;
    v_free integer;  v_taken integer;  v_held integer;  v_passed boolean;  v_special boolean;
    v_sweep boolean;  v_began bigint;  v_took bigint;  v_before bigint[];  v_before_attempts integer[];
    v_lanes integer[];  v_limit integer;  v_least integer;
    v_from_lines bigint[] := '{}';  v_from_lines_attempts integer[] := '{}';
    v_line record;  v_lined bigint[] := '{}';  v_half integer;  v_gate integer;
    -- What gates grant, each at the same place: how many calls, how many of them may be retries, how many went.
    g_names text[] := '{}';  g_calls integer[];  g_retries integer[];  g_firsts integer[];  g_again integer[];
    g_full boolean[];  g_left boolean[];
    -- The first so many have lines, as far as is known.
    g_lines integer := 0;  g integer;  g_last integer := 0;
    v_first integer;  v_waiting integer;  v_share integer;
    v_seen bigint;  v_expires boolean := false;  v_lives boolean;
BEGIN
    SELECT array_agg(q.id) INTO v_lanes FROM redrive.queues AS q WHERE q.name = ANY (p_queues);
    -- Most often there is one and it is free: to ask for it takes no statement.
    IF cardinality(v_lanes) <> 1 OR NOT pg_try_advisory_xact_lock(redrive.lane_class(), v_lanes[1]) THEN
        PERFORM redrive.lock_lanes(v_lanes);
    END IF;
    SELECT EXISTS (SELECT 1 FROM redrive.holders AS h WHERE h.id = p_holder),
           CASE WHEN EXISTS (SELECT 1 FROM redrive.claims AS c WHERE c.id IN (p_batch, p_alone)) THEN 'again' ELSE 'new' END
    INTO v_lives, answer;
    IF NOT v_lives THEN
        RAISE EXCEPTION 'the holder is gone' USING ERRCODE = 'RD412';
    END IF;
    IF answer = 'again' THEN
        RETURN;
    END IF;
    moved := '{}';
    seqs := '{}';
    attempts := '{}';
    dues := '{}';
    IF p_gates IS NOT NULL THEN
        SELECT * INTO g_names, g_calls, g_retries, g_full, g_lines FROM redrive.granted(p_gates);
        g_firsts := array_fill(0, ARRAY[cardinality(g_names)]);
        g_again := g_firsts;
        g_left := array_fill(false, ARRAY[cardinality(g_names)]);
    END IF;
    FOR i IN 1 .. cardinality(p_queues) LOOP
        -- One that was made since the lanes were locked is left for the next claim: its lane is not ours.
        SELECT q.id, q.paused,
               (SELECT l.expires_at FROM redrive.live AS l WHERE l.queue = q.id AND l.expires_at IS NOT NULL
                ORDER BY l.expires_at LIMIT 1) AS first_expiry
        INTO v_queue
        FROM redrive.queues AS q WHERE q.name = p_queues[i] AND q.id = ANY (v_lanes);
        CONTINUE WHEN NOT FOUND;
        v_room := p_limits[i];
        v_running := NULL;
        v_expires := v_expires OR v_queue.first_expiry IS NOT NULL;
        -- Out of time, held or not, due or not: they are claimed in order to be buried.
        IF v_room > 0 AND v_queue.first_expiry <= p_now THEN
            FOR v_row IN
                SELECT l.seq, l.attempt, l.crashes > 0 AS suspect, l.ordering_key, l.line
                FROM redrive.live AS l
                WHERE l.queue = v_queue.id AND l.expires_at <= p_now
                  AND (l.seq, l.attempt) NOT IN (SELECT r.seq, r.attempt FROM redrive.running AS r)
                ORDER BY l.priority DESC, l.due_at, l.seq
            LOOP
                CONTINUE WHEN v_row.suspect AND NOT v_suspect;
                IF v_row.suspect THEN
                    v_suspect := false;
                    alone := v_row.seq;  alone_attempt := v_row.attempt;
                    v_alone_ordered := v_row.ordering_key IS NOT NULL;
                    alone_at := cardinality(seqs);
                ELSE
                    seqs := seqs || v_row.seq;  attempts := attempts || v_row.attempt;
                    v_ordered := v_ordered OR v_row.ordering_key IS NOT NULL;
                END IF;
                IF v_row.ordering_key IS NOT NULL THEN
                    v_running := coalesce(v_running, redrive.keys_running(v_queue.id)) || v_row.ordering_key;
                END IF;
                IF v_row.line IS NOT NULL THEN
                    UPDATE redrive.live AS l SET line = NULL WHERE l.seq = v_row.seq;
                END IF;
                v_room := v_room - 1;
                EXIT WHEN v_room = 0;
            END LOOP;
        END IF;
        CONTINUE WHEN v_queue.paused;
        -- The lines, before the due scan with half of the room and after it with what is left: neither starves.
        FOR v_pass IN 1 .. 2 LOOP
        v_half := CASE v_pass WHEN 1 THEN (v_room + 1) / 2 ELSE v_room END;
        v_first := g_last;  v_waiting := g_lines;
        FOR k IN 1 .. coalesce(cardinality(g_names), 0) LOOP
            -- Behind the last that went.
            g := (v_first + k - 1) % cardinality(g_names) + 1;
            IF v_half <= 0 OR g_calls[g] <= 0 THEN
                g_left[g] := g_left[g] OR g <= g_lines;
                CONTINUE;
            END IF;
            -- Each gets its share, and what the ones before it left.
            v_share := v_half;
            IF g <= g_lines THEN
                v_share := greatest(v_half / greatest(v_waiting, 1), 1);
                v_waiting := v_waiting - 1;
            END IF;
            v_line := redrive.next_in_line(v_queue.id, g_names[g], least(v_share, g_calls[g]), g_retries[g], p_kinds,
                                           v_suspect, p_let_pass[i], p_now, v_running);
            v_running := v_line.running;
            g_left[g] := v_line.more;
            IF v_line.alone IS NOT NULL THEN
                v_suspect := false;
                alone := v_line.alone;  alone_attempt := v_line.alone_attempt;
                v_alone_ordered := v_line.ordered;
                alone_at := cardinality(seqs) + cardinality(v_line.seqs);
            END IF;
            seqs := seqs || v_line.seqs;  attempts := attempts || v_line.attempts;
            v_ordered := v_ordered OR v_line.ordered;
            g_firsts[g] := g_firsts[g] + v_line.firsts;  g_again[g] := g_again[g] + v_line.again;
            g_calls[g] := g_calls[g] - v_line.firsts - v_line.again;  g_retries[g] := g_retries[g] - v_line.again;
            v_from_lines := v_from_lines || v_line.seqs;  v_from_lines_attempts := v_from_lines_attempts || v_line.attempts;
            IF v_line.alone IS NOT NULL THEN
                v_from_lines := v_from_lines || v_line.alone;
                v_from_lines_attempts := v_from_lines_attempts || v_line.alone_attempt;
            END IF;
            v_half := v_half - v_line.firsts - v_line.again;  v_room := v_room - v_line.firsts - v_line.again;
            g_last := CASE WHEN v_line.firsts + v_line.again > 0 THEN g ELSE g_last END;
        END LOOP;
        EXIT WHEN v_pass = 2;
        FOR v_cursor IN
            SELECT b.priority AS band, c.n, c.due_at, c.seq, c.swept_at, c.sweep_ms, pg_current_snapshot() AS seen,
                   (SELECT min(f.due_at) FROM redrive.freed AS f
                    WHERE f.queue = v_queue.id AND f.priority = b.priority AND f.by >= pg_snapshot_xmin(c.seen)
                      AND NOT pg_visible_in_snapshot(f.by, c.seen)) AS freed_at
            FROM (SELECT DISTINCT n.priority FROM redrive.bands AS n WHERE n.queue = v_queue.id) AS b
            LEFT JOIN LATERAL (
                SELECT * FROM redrive.cursors AS o
                WHERE o.queue = v_queue.id AND o.priority = b.priority AND o.kinds = v_kinds ORDER BY o.n DESC LIMIT 1
            ) AS c ON true
            ORDER BY 1 DESC
        LOOP
            v_band := v_cursor.band;
            v_moved := CASE WHEN v_cursor.due_at > 0 THEN
                redrive.earlier(ARRAY[v_cursor.due_at, v_cursor.seq], ARRAY[v_cursor.freed_at, 0]) END;
            v_seen := 0;
            v_began := redrive.now_ms();
            v_sweep := v_moved IS NULL OR v_began - v_cursor.swept_at >= greatest(1000, 10 * v_cursor.sweep_ms);
            v_at := CASE WHEN v_sweep THEN ARRAY[0, 0] ELSE v_moved END;
            v_turn := ARRAY[0, 0];
            v_end := NULL;
            -- What has left a line is back in the scan, and runs as soon as this claim is written.
            v_before := v_from_lines;  v_before_attempts := v_from_lines_attempts;
            v_least := 16;
            v_special := false;
            v_passed := true;
            v_held := 0;
            WHILE v_room > 0 AND v_held < c_held LOOP
                -- Where the first look met what runs, the next ones are longer.
                v_limit := greatest(v_room, v_least);
                v_found := redrive.next_in_band(v_queue.id, v_band, v_at[1], v_at[2], v_turn[1], v_turn[2],
                                                p_now, p_now, v_limit, v_special, p_kinds, v_before, v_before_attempts,
                                                p_limited);
                v_least := greatest(2000, v_found.running);
                v_seen := v_seen + v_found.seen;
                IF v_found.special AND NOT v_special THEN
                    -- Seldom: once more, with what the others do not need.
                    v_special := true;
                    CONTINUE;
                END IF;
                v_free := coalesce(cardinality(v_found.seqs), 0);
                IF NOT coalesce(v_found.special, false) THEN
                    v_taken := least(v_room, v_free);
                    seqs := seqs || v_found.seqs[1:v_taken];
                    attempts := attempts || v_found.attempts[1:v_taken];
                    IF v_found.fresh THEN
                        v_ids := v_ids || v_found.ids[1:v_taken];  dues := dues || v_found.dues[1:v_taken];
                    END IF;
                    v_room := v_room - v_taken;
                    v_at := CASE WHEN v_taken < v_free THEN ARRAY[v_found.dues[v_taken], v_found.seqs[v_taken]]
                                 ELSE coalesce(v_found.last, v_at) END;
                    v_turn := v_at;
                    IF v_passed AND v_found.seen > 0 THEN
                        v_moved := redrive.later(v_moved, v_at);
                    END IF;
                ELSE
                    FOR j IN 1 .. v_free LOOP
                        v_at := ARRAY[v_found.dues[j], v_found.seqs[j]];
                        IF v_found.suspects[j] AND NOT v_suspect THEN
                            -- Left for later: the cursor stays before it.
                            IF v_passed AND v_found.keys[j] IS NULL THEN
                                v_passed := false;
                                v_moved := redrive.earlier(coalesce(v_moved, v_at), ARRAY[v_at[1], v_at[2] - 1]);
                            END IF;
                            CONTINUE;
                        END IF;
                        IF v_found.keys[j] IS NOT NULL THEN
                            v_running := coalesce(v_running, redrive.keys_running(v_queue.id));
                            v_row := redrive.take_turn(v_queue.id, v_found.keys[j], v_found.seqs[j], p_let_pass[i],
                                                       v_running, p_now);
                            IF NOT v_row.goes THEN
                                v_held := v_held + 1;
                                IF v_row.freed THEN
                                    next_due := least(next_due, p_now);
                                END IF;
                                EXIT WHEN v_held = c_held;
                                CONTINUE;
                            END IF;
                        ELSIF v_passed THEN
                            v_moved := redrive.later(v_moved, v_at);
                        END IF;
                        IF v_found.gates[j] IS NOT NULL THEN
                            v_gate := array_position(g_names, v_found.gates[j]);
                            IF v_gate IS NULL OR g_left[v_gate] OR g_calls[v_gate] <= 0
                               OR v_found.retries[j] AND g_retries[v_gate] <= 0 THEN
                                -- Into the line: it is not met again before its gate lets it go.
                                v_lined := v_lined || v_found.seqs[j];
                                IF NOT v_found.gates[j] = ANY (moved) THEN
                                    moved := moved || v_found.gates[j];
                                END IF;
                                v_held := v_held + 1;
                                EXIT WHEN v_held = c_held;
                                CONTINUE;
                            END IF;
                            g_calls[v_gate] := g_calls[v_gate] - 1;
                            IF v_found.retries[j] THEN
                                g_retries[v_gate] := g_retries[v_gate] - 1;  g_again[v_gate] := g_again[v_gate] + 1;
                            ELSE
                                g_firsts[v_gate] := g_firsts[v_gate] + 1;
                            END IF;
                        END IF;
                        IF v_found.keys[j] IS NOT NULL THEN
                            v_running := v_running || v_found.keys[j];
                        END IF;
                        IF v_found.suspects[j] THEN
                            v_suspect := false;
                            alone := v_found.seqs[j];  alone_attempt := v_found.attempts[j];
                            v_alone_ordered := v_found.keys[j] IS NOT NULL;
                            alone_at := cardinality(seqs);
                        ELSE
                            seqs := seqs || v_found.seqs[j];  attempts := attempts || v_found.attempts[j];
                            v_ordered := v_ordered OR v_found.keys[j] IS NOT NULL;
                        END IF;
                        v_room := v_room - 1;
                        EXIT WHEN v_room = 0;
                    END LOOP;
                    IF v_room > 0 AND v_held < c_held THEN
                        v_at := v_found.last;
                    END IF;
                    v_turn := v_at;
                END IF;
                IF v_found.seen < v_limit THEN
                    v_at := redrive.later(v_end, v_at);
                    v_turn := v_at;
                    EXIT WHEN v_room = 0 OR v_sweep OR v_began - v_cursor.swept_at < greatest(250, 10 * v_cursor.sweep_ms);
                    -- Room is left: what the cursor has passed, but for what has just been taken.
                    v_sweep := true;
                    v_end := v_at;
                    v_at := ARRAY[0, 0];
                    v_turn := v_at;
                    v_before := CASE WHEN alone IS NULL THEN seqs ELSE seqs || alone END;
                    v_before_attempts := CASE WHEN alone IS NULL THEN attempts ELSE attempts || alone_attempt END;
                END IF;
            END LOOP;
            next_due := least(next_due, redrive.next_due(v_queue.id, v_band, v_at, v_turn, v_suspect, p_kinds, p_limited));
            v_moved := coalesce(redrive.earlier(v_moved, ARRAY[p_now - c_late, 0]), ARRAY[0, 0]);
            v_took := redrive.now_ms() - v_began;
            -- A step back is always written. A step ahead need not be where little was met, and is not far.
            v_at := ARRAY[coalesce(v_cursor.due_at, 0), coalesce(v_cursor.seq, 0)];
            IF v_moved < v_at
               OR v_moved > v_at AND (v_sweep OR v_seen > c_few OR v_moved[1] > v_at[1] + c_near)
               OR v_sweep AND v_took > 0 THEN
                PERFORM redrive.move_cursor(v_queue.id, v_band, v_kinds, v_cursor.n, v_moved, v_cursor.seen,
                                            CASE WHEN v_sweep THEN v_began ELSE v_cursor.swept_at END,
                                            CASE WHEN v_sweep THEN v_took ELSE v_cursor.sweep_ms END);
            END IF;
        END LOOP;
        IF cardinality(v_lined) > 0 THEN
            UPDATE redrive.live AS l SET line = (l.failures > 0)::integer WHERE l.seq = ANY (v_lined);
            v_lined := '{}';
        END IF;
        END LOOP;
    END LOOP;
    IF p_gates IS NOT NULL THEN
        gates := redrive.let_go(p_gates, g_names, g_firsts, g_again, g_calls, g_retries, g_full, v_lanes);
    END IF;
    IF cardinality(seqs) > 0 OR alone IS NOT NULL THEN
        -- Kept from being ended while this is written. Not before: whoever finds nothing need not wait for the disk.
        PERFORM 1 FROM redrive.holders AS h WHERE h.id = p_holder FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the holder is gone' USING ERRCODE = 'RD412';
        END IF;
    END IF;
    IF cardinality(seqs) > 0 THEN
        IF cardinality(v_ids) < cardinality(seqs) THEN
            v_ids := NULL;  dues := NULL;
        END IF;
        INSERT INTO redrive.claims (id, holder, claimed_at, lowest, highest, unsettled, ordered, seqs, attempts, ids, dues)
        SELECT p_batch, p_holder, p_now, min(s), max(s), count(*), v_ordered, seqs, attempts, v_ids, dues
        FROM unnest(seqs) AS s;
    END IF;
    IF alone IS NOT NULL THEN
        INSERT INTO redrive.claims (id, holder, claimed_at, lowest, highest, unsettled, ordered, seqs, attempts)
        VALUES (p_alone, p_holder, p_now, alone, alone, 1, v_alone_ordered, ARRAY[alone], ARRAY[alone_attempt]);
    END IF;
    IF v_expires THEN
        SELECT least(next_due, min(e.at)) INTO next_due
        FROM redrive.queues AS q CROSS JOIN LATERAL redrive.next_expiry(q.id, v_suspect) AS e (at)
        WHERE q.name = ANY (p_queues);
    END IF;
    IF cardinality(seqs) > c_short THEN
        seqs := NULL;  attempts := NULL;  dues := NULL;
    END IF;
END $$;

CREATE FUNCTION redrive.claimed(p_claims uuid[]) RETURNS TABLE(seq bigint, due_at bigint, attempt integer, id uuid, queue integer, priority smallint, policy integer, created_at bigint, checksum bigint, kind text, payload text, rest text, counters integer[], reason text, last_delay_ms bigint, in_line_ms bigint)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    c_days CONSTANT bigint := 3 * 86400000;
    v_claim record;  v_first uuid;  v_last uuid;  v_read bigint;
BEGIN
    FOR v_claim IN
        SELECT c.seqs, CASE WHEN c.unsettled = cardinality(c.seqs) AND c.lost = '{}' THEN c.ids END AS ids
        FROM redrive.claims AS c WHERE c.id = ANY (p_claims)
    LOOP
        v_read := 0;
        IF v_claim.ids IS NOT NULL THEN
            v_first := v_claim.ids[1];
            v_last := v_first;
            IF cardinality(v_claim.ids) > 1 THEN
                v_first := (SELECT i FROM unnest(v_claim.ids) AS i ORDER BY i LIMIT 1);
                v_last := (SELECT i FROM unnest(v_claim.ids) AS i ORDER BY i DESC LIMIT 1);
            END IF;
            IF redrive.made_at(v_last) - redrive.made_at(v_first) < c_days THEN
                RETURN QUERY
                SELECT j.seq, j.run_at, 0, j.id, j.queue, j.priority, j.policy, j.created_at, j.checksum, j.kind,
                       j.payload, j.rest, NULL::integer[], NULL::text, NULL::bigint, NULL::bigint
                FROM redrive.contents AS j
                WHERE j.id BETWEEN v_first AND v_last AND j.id = ANY (v_claim.ids);
                GET DIAGNOSTICS v_read = ROW_COUNT;
            END IF;
        END IF;
        IF v_read < cardinality(v_claim.seqs) THEN
            RETURN QUERY
            SELECT l.seq, l.due_at, l.attempt, l.id, l.queue, l.priority, j.policy, j.created_at, j.checksum, j.kind,
                   j.payload, j.rest,
                   CASE WHEN l.attempt = 0 AND l.generation = 0 THEN NULL
                        ELSE ARRAY[l.failures, l.crashes, l.snoozes, l.holds, l.interruptions, l.generation] END,
                   CASE WHEN l.line IS NOT NULL THEN 'held' WHEN l.held THEN 'order' ELSE l.reason END, l.last_delay_ms,
                   l.in_line_ms
            FROM redrive.live AS l LEFT JOIN redrive.contents AS j ON j.id = l.id
            -- Of what has been read already, only what was not found is left.
            WHERE l.seq = ANY (v_claim.seqs) AND (v_read = 0 OR j.id IS NULL);
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION redrive.count_mistakes(p_path text, p_value jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    AS $_$
    SELECT CASE WHEN p_value IS NULL
                  OR jsonb_typeof(p_value) = 'number' AND p_value::text ~ '^[0-9]{1,10}$' AND p_value::text::numeric <= 4294967295
           THEN '{}'::text[]
           ELSE ARRAY[format('%s: %s is not a count; write a whole number from 0 to 4294967295', p_path, p_value)] END
$_$;

CREATE FUNCTION redrive.day_start(p_day date) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT (p_day - date '1970-01-01')::bigint * 86400000
$$;

CREATE FUNCTION redrive.days() RETURNS SETOF date
    LANGUAGE sql STABLE
    AS $_$
    SELECT to_date(substr(c.relname, 6), 'YYYYMMDD')
    FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace = 'redrive'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^jobs_[0-9]{8}$'
    ORDER BY 1
$_$;

CREATE FUNCTION redrive.drop_day(p_day date, p_succeeded bigint, p_cancelled bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET jit TO 'off'
    AS $_$
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
            -- One question for the whole day: which jobs belong to one that has not come to its end?
            WHEN 'done' THEN format('LEFT JOIN (SELECT j.id FROM redrive.jobs AS j
                                                WHERE j.parent IN (SELECT l.id FROM redrive.live AS l
                                                                   UNION ALL SELECT x.id FROM redrive.dead AS x)
                                               ) AS needed ON needed.id = d.id
                                     WHERE d.finished_at > CASE WHEN d.cancelled THEN %s ELSE %s END
                                        OR needed.id IS NOT NULL', p_cancelled, p_succeeded)
            ELSE 'WHERE EXISTS (SELECT 1 FROM redrive.live AS l WHERE l.seq = d.seq)
                  OR EXISTS (SELECT 1 FROM redrive.dead AS l WHERE l.seq = d.seq)
                  OR EXISTS (SELECT 1 FROM redrive.done AS l WHERE l.seq = d.seq)'
        END;
        EXECUTE format('CREATE TEMPORARY TABLE redrive_kept ON COMMIT DROP AS SELECT d.* FROM redrive.%s_%s AS d %s',
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
END $_$;

CREATE FUNCTION redrive.earlier(a bigint[], b bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN a[1] IS NULL OR b > a THEN a ELSE b END
$$;

CREATE FUNCTION redrive.edit(p_lanes integer[], p_seq bigint, p_id uuid, p_state text, p_attempt integer, p_policy integer, p_checksum bigint, p_priority smallint, p_labels text, p_destination text, p_payload text, p_before text, p_kept bigint, p_note jsonb, p_expires bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
BEGIN
    PERFORM redrive.lock_lanes(p_lanes);
    IF p_state = 'waiting' THEN
        UPDATE redrive.live AS l SET priority = p_priority, destination = p_destination, line = NULL, expires_at = p_expires
        WHERE l.seq = p_seq AND l.attempt = p_attempt AND NOT redrive.has_begun(p_seq, p_attempt);
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    ELSE
        PERFORM 1 FROM redrive.dead AS d WHERE d.seq = p_seq AND d.attempt = p_attempt FOR UPDATE;
        IF NOT FOUND THEN
            PERFORM 1 FROM redrive.done AS d WHERE d.seq = p_seq AND d.attempt = p_attempt AND d.cancelled FOR UPDATE;
            IF NOT FOUND THEN
                RETURN false;
            END IF;
        END IF;
    END IF;
    UPDATE redrive.jobs AS j
    SET policy = p_policy, checksum = p_checksum, priority = p_priority, labels = p_labels, destination = p_destination,
        payload = p_payload
    WHERE j.id = p_id;
    PERFORM redrive.know_band(p_lanes[1], p_priority);
    INSERT INTO redrive.edits (job, before) VALUES (p_id, p_before);
    DELETE FROM redrive.edits AS e WHERE e.job = p_id AND e.n <= (
        SELECT f.n FROM redrive.edits AS f WHERE f.job = p_id ORDER BY f.n DESC OFFSET p_kept LIMIT 1);
    INSERT INTO redrive.activity (at, job, what, kind, queue, message)
    SELECT ARRAY[n.at], ARRAY[n.job], ARRAY[n.what], ARRAY[n.kind], ARRAY[n.queue], ARRAY[n.message]
    FROM jsonb_to_record(p_note) AS n (at bigint, job uuid, what text, kind text, queue text, message text);
    RETURN true;
END $$;

CREATE FUNCTION redrive.ended(p_ids uuid[], p_from bigint, p_until bigint) RETURNS TABLE(id uuid, state text, output text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    v_first CONSTANT uuid := (SELECT i FROM unnest(p_ids) AS i ORDER BY i LIMIT 1);
    v_last  CONSTANT uuid := (SELECT i FROM unnest(p_ids) AS i ORDER BY i DESC LIMIT 1);
    v_seqs CONSTANT bigint[] := ARRAY(
        SELECT j.seq FROM redrive.jobs AS j WHERE j.id BETWEEN v_first AND v_last AND j.id = ANY (p_ids));
BEGIN
    RETURN QUERY
    SELECT d.id, CASE WHEN d.cancelled THEN 'cancelled' ELSE 'succeeded' END, d.output
    FROM redrive.done AS d WHERE d.seq = ANY (v_seqs) AND d.finished_at >= p_from AND d.finished_at < p_until
    UNION ALL
    SELECT d.id, 'dead', NULL FROM redrive.dead AS d WHERE d.seq = ANY (v_seqs);
END $$;

CREATE FUNCTION redrive.enqueue(job jsonb, OUT id uuid, OUT deduplicated boolean, OUT state text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    v_job CONSTANT jsonb := redrive.made_job(job, redrive.now_ms());
    v_how text;
BEGIN
    SELECT a.job, a.how INTO id, v_how FROM redrive.admit_in_transaction(v_job) AS a;
    IF v_how = 'taken' THEN
        RAISE EXCEPTION 'a job with the key % is already there (%)', to_json(v_job ->> 'unique_key'), id
            USING ERRCODE = 'RD001', DETAIL = v_job ->> 'unique_key',
                  HINT = 'wait until it is finished, or write "onConflict": "ignore"; only the engine can replace one';
    END IF;
    deduplicated := v_how = 'existing';
    state := 'waiting';
    IF deduplicated AND EXISTS (
        SELECT 1 FROM redrive.keys AS k JOIN redrive.live AS l ON l.seq = k.seq
        JOIN redrive.running AS r ON l.seq BETWEEN r.lowest AND r.highest AND r.seq = l.seq AND r.attempt = l.attempt
        WHERE k.key = v_job ->> 'unique_key') THEN
        state := 'running';
    END IF;
END $$;

CREATE FUNCTION redrive.first_id(p_ms bigint) RETURNS uuid
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT (lpad(to_hex(p_ms), 12, '0') || repeat('0', 20))::uuid
$$;

CREATE FUNCTION redrive.forget(p_succeeded bigint, p_cancelled bigint, p_dead bigint, p_limit integer) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
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

CREATE FUNCTION redrive.forget_one(p_seq bigint, p_id uuid) RETURNS text
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
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

CREATE FUNCTION redrive.granted(p_gates jsonb, OUT names text[], OUT calls integer[], OUT retries integer[], OUT is_full boolean[], OUT lines integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO redrive.gates (name, version, active, state)
    SELECT p.name, 0, true, p.state
    FROM jsonb_to_recordset(p_gates) AS p (name text, version bigint, state text)
    WHERE p.version = 0 AND NOT EXISTS (SELECT 1 FROM redrive.gates AS g WHERE g.name = p.name)
    ORDER BY p.name
    ON CONFLICT (name) DO NOTHING;
    names := ARRAY(
        SELECT g.name FROM redrive.gates AS g
        WHERE g.name IN (SELECT p.name FROM jsonb_to_recordset(p_gates) AS p (name text)) FOR UPDATE SKIP LOCKED);
    SELECT coalesce(array_agg(n.name), '{}'), array_agg(least(n.calls, n.places)),
           array_agg(least(n.calls, n.places, n.retries)), array_agg(n.places <= 0), count(*) FILTER (WHERE n.waits)
    INTO names, calls, retries, is_full, lines
    FROM (
        SELECT p.name, p.waits,
               least(p.most, redrive.bucket_room(g.next_us, p.floor, p.until, p.cost)) AS calls,
               redrive.bucket_room(g.retry_us, p.retry_floor, p.retry_until, p.retry_cost) AS retries,
               CASE WHEN p.places IS NULL THEN 2147483647 ELSE p.places - redrive.calls_to(p.name) END AS places
        FROM jsonb_to_recordset(p_gates) AS p (
            name text, version bigint, most integer, floor bigint, until bigint, cost bigint, retry_floor bigint,
            retry_until bigint, retry_cost bigint, places integer, turn integer, waits boolean)
        LEFT JOIN redrive.gates AS g ON g.name = p.name
        WHERE p.version IS NOT DISTINCT FROM g.version AND (p.version IS NULL OR p.name = ANY (granted.names))
        ORDER BY p.turn
    ) AS n;
END $$;

CREATE FUNCTION redrive.has_begun(p_seq bigint, p_attempt integer) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    PERFORM 1 FROM redrive.live AS l WHERE l.seq = p_seq FOR NO KEY UPDATE;
    RETURN EXISTS (SELECT 1 FROM redrive.running AS r
                   WHERE p_seq BETWEEN r.lowest AND r.highest AND r.seq = p_seq AND r.attempt = p_attempt);
END $$;

CREATE FUNCTION redrive.hasten_one(p_seq bigint, p_attempt integer, p_at bigint, p_reason text) RETURNS text
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    UPDATE redrive.live AS l SET due_at = p_at, reason = p_reason, line = NULL
    WHERE l.seq = p_seq AND l.attempt = p_attempt AND NOT redrive.has_begun(p_seq, p_attempt);
    RETURN CASE WHEN FOUND THEN 'done' ELSE 'changed' END;
END $$;

CREATE FUNCTION redrive.instant(p_ms bigint) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT to_timestamp(p_ms::double precision / 1000)
$$;

CREATE FUNCTION redrive.is_gated(p_name text, p_limited text[]) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM redrive.gates AS g WHERE g.name = p_name AND g.active) OR p_name LIKE ANY (p_limited);
END $$;

CREATE FUNCTION redrive.is_needed(p_id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT EXISTS (
        SELECT 1 FROM redrive.jobs AS j JOIN redrive.jobs AS p ON p.id = j.parent
        WHERE j.id = p_id
          AND (EXISTS (SELECT 1 FROM redrive.live AS l WHERE l.seq = p.seq)
               OR EXISTS (SELECT 1 FROM redrive.dead AS d WHERE d.seq = p.seq)))
$$;

CREATE FUNCTION redrive.jitter_mistakes(p_jitter jsonb) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    AS $$
DECLARE
    v_jitter CONSTANT jsonb := CASE jsonb_typeof(p_jitter) WHEN 'string' THEN jsonb_build_object('kind', p_jitter) ELSE p_jitter END;
    v_wrong text[];
BEGIN
    IF v_jitter IS NULL THEN
        RETURN '{}';
    ELSIF jsonb_typeof(v_jitter) <> 'object' THEN
        RETURN ARRAY[format('policy.jitter is %s; write an object, {"kind": …}', v_jitter)];
    END IF;
    v_wrong := redrive.unknown_fields('policy.jitter.', v_jitter, '{ratio,max,kind,skipFirst,overCap}')
        || redrive.word_mistakes('policy.jitter.kind', v_jitter -> 'kind', '{none,ratio,additive,full,equal,decorrelated}')
        || redrive.word_mistakes('policy.jitter.overCap', v_jitter -> 'overCap', '{within,beyond}')
        || redrive.truth_mistakes('policy.jitter.skipFirst', v_jitter -> 'skipFirst')
        || redrive.span_mistakes('policy.jitter.max', v_jitter -> 'max',
               CASE v_jitter ->> 'kind' WHEN 'additive' THEN 'write how much is added at most, such as "500ms", or kind "none"' END);
    IF v_jitter ->> 'kind' = 'additive' AND NOT v_jitter ? 'max' THEN
        v_wrong := v_wrong || 'policy.jitter.max is needed: write how much is added at most, such as "500ms", or kind "none"'::text;
    END IF;
    IF v_jitter ? 'ratio' AND (jsonb_typeof(v_jitter -> 'ratio') <> 'number'
                               OR (v_jitter ->> 'ratio')::numeric NOT BETWEEN 0.000001 AND 1) THEN
        v_wrong := v_wrong || format('policy.jitter.ratio is %s: write a number above 0 and up to 1, such as 0.1 for ± 10 %%', v_jitter -> 'ratio');
    END IF;
    RETURN v_wrong;
END $$;

CREATE FUNCTION redrive.json_text(p_json text, p_name text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT replace(p_json, E'\\u0000', E'\\ufffd')::json ->> p_name
$$;

CREATE FUNCTION redrive.keys_running(p_queue integer) RETURNS text[]
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
    SELECT coalesce(array_agg(DISTINCT l.ordering_key), '{}')
    FROM redrive.claims AS c CROSS JOIN LATERAL unnest(c.seqs, c.attempts) AS listed (seq, attempt)
    JOIN redrive.live AS l ON l.seq = listed.seq AND l.attempt = listed.attempt
    WHERE c.ordered AND l.queue = p_queue AND l.ordering_key IS NOT NULL
$$;

CREATE FUNCTION redrive.know_band(p_queue integer, p_priority smallint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM redrive.bands AS b WHERE b.queue = p_queue AND b.priority = p_priority) THEN
        INSERT INTO redrive.bands (queue, priority) VALUES (p_queue, p_priority);
    END IF;
END $$;

CREATE FUNCTION redrive.know_queue(p_name text) RETURNS void
    LANGUAGE plpgsql
    SET lock_timeout TO '50ms'
    AS $$
BEGIN
    PERFORM redrive.queue_id(p_name);
EXCEPTION WHEN lock_not_available THEN
    -- Someone's open transaction is about to.
    RETURN;
END $$;

CREATE FUNCTION redrive.lane_class() RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT 1380209238
$$;

CREATE FUNCTION redrive.later(a bigint[], b bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN a[1] IS NULL OR b > a THEN b ELSE a END
$$;

CREATE FUNCTION redrive.learn(p_name text, p_version bigint, p_state text, p_active boolean, p_sent bigint, p_at bigint, p_job uuid, p_note text, OUT written boolean, OUT version bigint, OUT active boolean, OUT state text, OUT next_us bigint, OUT retry_us bigint, OUT sent bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF p_version = 0 THEN
        INSERT INTO redrive.gates AS g (name, version, active, state)
        VALUES (p_name, nextval('redrive.gate_versions'), p_active, p_state)
        ON CONFLICT (name) DO UPDATE SET version = excluded.version, active = excluded.active, state = excluded.state
        WHERE g.version = 0;
    ELSE
        UPDATE redrive.gates AS g
        SET version = nextval('redrive.gate_versions'), active = p_active, state = p_state, sent = g.sent - p_sent
        WHERE g.name = p_name AND g.version = p_version;
    END IF;
    written := FOUND;
    IF written AND p_note IS NOT NULL THEN
        INSERT INTO redrive.activity (at, job, what, kind, queue, message)
        VALUES (ARRAY[p_at], ARRAY[p_job], ARRAY['destination'], ARRAY[''], ARRAY[''], ARRAY[p_note]);
    END IF;
    SELECT g.version, g.active, g.state, g.next_us, g.retry_us, g.sent
    INTO version, active, state, next_us, retry_us, sent
    FROM redrive.gates AS g WHERE g.name = p_name;
END $$;

CREATE FUNCTION redrive.let_go(p_gates jsonb, p_names text[], p_firsts integer[], p_again integer[], p_left integer[], p_left_retries integer[], p_full boolean[], p_queues integer[]) RETURNS text
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    UPDATE redrive.gates AS g
    SET next_us = CASE WHEN p.cost = 0 THEN g.next_us
                       ELSE greatest(g.next_us, p.floor) + (w.firsts + w.again) * p.cost END,
        retry_us = CASE WHEN p.retry_cost = 0 OR w.again = 0 THEN g.retry_us
                        ELSE greatest(g.retry_us, p.retry_floor) + w.again * p.retry_cost END - w.firsts * p.credit,
        sent = g.sent + w.firsts + w.again,
        version = CASE WHEN p.changes THEN nextval('redrive.gate_versions') ELSE g.version END,
        state = CASE WHEN p.changes THEN p.state ELSE g.state END
    FROM unnest(p_names, p_firsts, p_again) AS w (name, firsts, again)
    JOIN jsonb_to_recordset(p_gates) AS p (
        name text, version bigint, floor bigint, cost bigint, retry_floor bigint, retry_cost bigint, credit bigint,
        changes boolean, state text) ON p.name = w.name
    WHERE g.name = w.name AND w.firsts + w.again > 0 AND p.version IS NOT NULL;
    RETURN (
        SELECT jsonb_agg(jsonb_build_object(
            'name', p.name, 'version', g.version, 'active', g.active, 'state', g.state, 'next_us', g.next_us,
            'retry_us', g.retry_us, 'sent', g.sent,
            'went', coalesce((SELECT w.firsts + w.again FROM unnest(p_names, p_firsts, p_again) AS w (name, firsts, again)
                              WHERE w.name = p.name), -1),
            'left', (SELECT ARRAY[w.calls, w.retries] FROM unnest(p_names, p_left, p_left_retries) AS w (name, calls, retries)
                     WHERE w.name = p.name),
            'full', coalesce((SELECT w.is_full FROM unnest(p_names, p_full) AS w (name, is_full) WHERE w.name = p.name),
                             false),
            'waits', (SELECT min(w.line) FROM (
                SELECT (SELECT l.line FROM redrive.live AS l
                        WHERE l.destination = p.name AND l.queue = q.id AND l.line IS NOT NULL
                        ORDER BY l.destination, l.queue, l.line LIMIT 1) AS line
                FROM unnest(p_queues) AS q (id)) AS w)))::text
        FROM jsonb_to_recordset(p_gates) AS p (name text)
        LEFT JOIN redrive.gates AS g ON g.name = p.name);
END $$;

CREATE FUNCTION redrive.let_members_go(p_well bigint[], p_well_at bigint[], p_badly bigint[], p_badly_at bigint[], p_holder uuid DEFAULT NULL::uuid, p_claim uuid DEFAULT NULL::uuid, p_kinds text[] DEFAULT NULL::text[], p_queues integer[] DEFAULT NULL::integer[], p_bands smallint[] DEFAULT NULL::smallint[], p_places integer[] DEFAULT NULL::integer[]) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    v_after bigint[];  v_at bigint[];  v_gone integer[];  v_begun bigint[];
BEGIN
    IF cardinality(p_well) > 0 THEN
        WITH gone AS (
            DELETE FROM redrive.edges AS e USING unnest(p_well, p_well_at) AS w (seq, at) WHERE e.before = w.seq
            RETURNING e.after, w.at
        ), counted AS (
            SELECT g.after, max(g.at) AS at, count(*)::integer AS gone FROM gone AS g GROUP BY g.after ORDER BY g.after
        )
        SELECT array_agg(c.after), array_agg(c.at), array_agg(c.gone) INTO v_after, v_at, v_gone FROM counted AS c;
        IF p_claim IS NOT NULL AND v_after IS NOT NULL THEN
            v_begun := redrive.begin_members(v_after, v_at, v_gone, p_holder, p_claim, p_kinds, p_queues, p_bands, p_places);
            SELECT array_agg(r.seq), array_agg(r.at), array_agg(r.gone) INTO v_after, v_at, v_gone
            FROM (SELECT g.seq, max(g.at) AS at, max(g.gone) AS gone
                  FROM (SELECT * FROM unnest(v_after, v_at, v_gone) UNION ALL SELECT b, 0, 0 FROM unnest(v_begun) AS b)
                      AS g (seq, at, gone)
                  GROUP BY g.seq HAVING count(*) = 1 ORDER BY g.seq) AS r;
        END IF;
        -- Not in the same statement: who was brought back while the edges were waited for is not in its snapshot.
        WITH counted AS (
            UPDATE redrive.live AS l
            SET waits_for = l.waits_for - g.gone,
                due_at = CASE WHEN l.waits_for > g.gone THEN l.due_at ELSE least(l.due_at, g.at) END,
                reason = CASE WHEN l.waits_for > g.gone THEN l.reason END
            FROM unnest(v_after, v_at, v_gone) AS g (seq, at, gone)
            WHERE l.seq = g.seq
            RETURNING l.queue, l.priority, l.due_at, l.waits_for
        )
        INSERT INTO redrive.freed (queue, priority, due_at)
        SELECT c.queue, c.priority, min(c.due_at) FROM counted AS c WHERE c.waits_for <= 0 GROUP BY 1, 2;
    END IF;
    IF cardinality(p_badly) > 0 THEN
        WITH told AS (
            UPDATE redrive.live AS l SET due_at = least(l.due_at, x.at), reason = NULL
            FROM (SELECT e.execution, max(b.at) AS at
                  FROM unnest(p_badly, p_badly_at) AS b (seq, at) JOIN redrive.edges AS e ON e.before = b.seq
                  GROUP BY e.execution) AS x
            WHERE l.seq = x.execution AND l.reason IN ('dependency', 'snoozed')
            RETURNING l.queue, l.priority, l.due_at
        )
        INSERT INTO redrive.freed (queue, priority, due_at)
        SELECT t.queue, t.priority, min(t.due_at) FROM told AS t GROUP BY 1, 2;
    END IF;
    RETURN coalesce(cardinality(v_begun), 0);
END $$;

CREATE FUNCTION redrive.let_next_go(p_queue integer, p_key text) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    UPDATE redrive.live SET held = false WHERE seq = (
        SELECT l.seq FROM redrive.live AS l
        WHERE l.queue = p_queue AND l.ordering_key = p_key AND l.held ORDER BY l.seq LIMIT 1);
END $$;

CREATE FUNCTION redrive.lines() RETURNS SETOF text
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_name text := (SELECT l.destination FROM redrive.live AS l WHERE l.line IS NOT NULL
                    ORDER BY l.destination, l.queue, l.line, l.priority DESC, l.due_at, l.seq LIMIT 1);
BEGIN
    WHILE v_name IS NOT NULL LOOP
        RETURN NEXT v_name;
        v_name := (SELECT l.destination FROM redrive.live AS l WHERE l.line IS NOT NULL AND l.destination > v_name
                   ORDER BY l.destination, l.queue, l.line, l.priority DESC, l.due_at, l.seq LIMIT 1);
    END LOOP;
END $$;

CREATE FUNCTION redrive.lock_lanes(p_queues integer[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_queue integer;
BEGIN
    FOR v_queue IN SELECT DISTINCT q FROM unnest(p_queues) AS q ORDER BY q LOOP
        PERFORM pg_advisory_xact_lock(redrive.lane_class(), v_queue);
    END LOOP;
END $$;

CREATE FUNCTION redrive.lost(p_claims uuid[], p_seqs bigint[], p_attempts integer[]) RETURNS integer[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    RETURN (
        SELECT coalesce(array_agg(s.n::integer), '{}')
        FROM unnest(p_claims, p_seqs, p_attempts) WITH ORDINALITY AS s (claim, seq, attempt, n)
        LEFT JOIN redrive.claims AS c ON c.id = s.claim
        LEFT JOIN redrive.live AS l ON l.seq = s.seq AND l.attempt = s.attempt
        WHERE c.id IS NULL OR l.seq IS NULL);
END $$;

CREATE FUNCTION redrive.made_at(p_id uuid) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT ('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint
$$;

CREATE FUNCTION redrive.made_job(p_new jsonb, p_now bigint) RETURNS jsonb
    LANGUAGE plpgsql
    AS $_$
DECLARE
    c_known CONSTANT text[] := '{kind,payload,queue,policy,key,onConflict,priority,delay,runAt,deadline,startBy,timeout,orderingKey,destination,parent,labels}';
    c_longest CONSTANT bigint := 34560000000;
    c_farthest CONSTANT bigint := 3153600000000;
    v_new jsonb;  v_payload text;  v_wrong text[];  v_field record;  v_read record;  v_policy record;
    v_due bigint := p_now;  v_deadline bigint;  v_start_by bigint;  v_timeout bigint;  v_expires bigint;  v_parent uuid;
BEGIN
    IF jsonb_typeof(p_new) IS DISTINCT FROM 'object' THEN
        PERFORM redrive.refuse('a job', ARRAY[format('it is %s; write an object, {"kind": …}', coalesce(p_new::text, 'NULL'))]);
    END IF;
    -- A null is as good as nothing, but for the payload.
    v_new := coalesce((SELECT jsonb_object_agg(f.key, f.value) FROM jsonb_each(p_new) AS f
                       WHERE f.value <> 'null' AND f.key <> 'payload'
                         -- An object without fields, as PHP writes it.
                         AND NOT (f.key = 'labels' AND f.value = '[]')), '{}');
    v_wrong := redrive.unknown_fields('', v_new, c_known) || redrive.name_mistakes(v_new);
    v_payload := coalesce(p_new -> 'payload', 'null')::text;
    IF octet_length(v_payload) > 262144 THEN
        v_wrong := v_wrong || format('its payload has %s bytes and 262144 are allowed: store the data elsewhere and put a '
                                     'reference into the job', octet_length(v_payload));
    END IF;
    IF (v_new ->> 'onConflict') NOT IN ('ignore', 'reject', 'replace') THEN
        v_wrong := v_wrong || format('onConflict: %s is not known; write one of "ignore", "reject", "replace"', v_new -> 'onConflict');
    END IF;
    IF v_new ->> 'priority' !~ '^-?[0-9]{1,5}$' OR jsonb_typeof(v_new -> 'priority') <> 'number'
       OR (v_new ->> 'priority')::numeric NOT BETWEEN -32768 AND 32767 THEN
        v_wrong := v_wrong || format('priority: %s is not a priority; write a whole number from -32768 to 32767', v_new -> 'priority');
    END IF;
    SELECT * INTO v_policy FROM redrive.read_policy(v_new -> 'policy');
    v_wrong := v_wrong || v_policy.mistakes;
    -- When.
    FOR v_field IN SELECT f.key, f.value FROM jsonb_each(v_new) AS f WHERE f.key IN ('delay', 'timeout') LOOP
        IF jsonb_typeof(v_field.value) = 'number' THEN
            v_wrong := v_wrong || format('%s: %s has no unit; write "%2$ss" for seconds or "%2$sms" for milliseconds',
                                         v_field.key, v_field.value);
            CONTINUE;
        END IF;
        SELECT * INTO v_read FROM redrive.read_span(v_field.value);
        IF v_read.mistake IS NOT NULL THEN
            v_wrong := v_wrong || format('%s: %s', v_field.key, v_read.mistake);
        ELSIF v_field.key = 'delay' THEN
            v_due := p_now + least(v_read.ms, c_farthest + 1);
        ELSE
            v_timeout := least(v_read.ms, c_longest);
        END IF;
    END LOOP;
    FOR v_field IN SELECT f.key, f.value FROM jsonb_each(v_new) AS f WHERE f.key IN ('runAt', 'deadline', 'startBy') LOOP
        SELECT * INTO v_read FROM redrive.read_time(v_field.value);
        IF v_read.mistake IS NOT NULL THEN
            v_wrong := v_wrong || format('%s: %s', v_field.key, v_read.mistake);
        ELSIF v_field.key = 'runAt' THEN
            v_due := greatest(v_read.ms, p_now);
        ELSIF v_field.key = 'deadline' THEN
            v_deadline := v_read.ms;
        ELSE
            v_start_by := v_read.ms;
        END IF;
    END LOOP;
    IF v_new ?& '{delay,runAt}' THEN
        v_wrong := v_wrong || 'delay and runAt are both written; keep one of them'::text;
    END IF;
    IF v_due - p_now > c_farthest THEN
        v_wrong := v_wrong || 'it would be due too far away; let it run within a hundred years'::text;
    END IF;
    v_deadline := coalesce(v_deadline, p_now + v_policy.deadline);
    v_start_by := coalesce(v_start_by, p_now + v_policy.start_by);
    v_expires := least(v_deadline, v_start_by);
    IF v_due >= v_expires THEN
        v_wrong := v_wrong || format('it would be due at %s, after its time is over at %s; give it a later deadline and '
                                     'startBy, or an earlier time to run', redrive.time_text(v_due), redrive.time_text(v_expires));
    END IF;
    IF v_new ->> 'parent' !~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$' THEN
        v_wrong := v_wrong || format('parent: %s is not a job id; ids look like 019a8f3e-5c1d-7b42-9e6f-3d2a1b0c9d8e', v_new -> 'parent');
    ELSE
        v_parent := (v_new ->> 'parent')::uuid;
    END IF;
    IF v_wrong <> '{}' THEN
        PERFORM redrive.refuse(format('the %s job', coalesce(v_new -> 'kind', '""')), v_wrong);
    END IF;
    RETURN jsonb_build_object(
        'id', redrive.new_id(p_now), 'kind', v_new ->> 'kind', 'queue', coalesce(v_new ->> 'queue', 'default'),
        'policy', v_policy.body, 'policy_version', 1, 'payload', v_payload,
        'unique_key', v_new ->> 'key', 'on_conflict', coalesce(v_new ->> 'onConflict', 'ignore'),
        'priority', coalesce((v_new ->> 'priority')::smallint, 0), 'ordering_key', v_new ->> 'orderingKey',
        'destination', v_new ->> 'destination', 'parent', v_parent,
        'labels', nullif(v_new -> 'labels', '{}')::text, 'created_at', p_now, 'due_at', v_due, 'deadline', v_deadline,
        'start_by', v_start_by, 'timeout_ms', v_timeout,
        -- Where the time for which it is held does not count, nobody knows yet.
        'expires_at', CASE WHEN v_policy.held_counts OR v_new ->> 'destination' IS NULL THEN v_expires END,
        'attempt', 0, 'failures', 0, 'crashes', 0, 'snoozes', 0, 'holds', 0, 'interruptions', 0, 'generation', 0);
END $_$;

CREATE FUNCTION redrive.make_day(p_day date) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_name CONSTANT text := to_char(p_day, 'YYYYMMDD');
    v_from CONSTANT bigint := redrive.day_start(p_day);
    v_until CONSTANT bigint := redrive.day_start(p_day + 1);
BEGIN
    IF to_regclass('redrive.jobs_' || v_name) IS NOT NULL THEN
        RETURN true;
    END IF;
    PERFORM set_config('lock_timeout', '200ms', true);
    EXECUTE format('CREATE TABLE redrive.jobs_%s PARTITION OF redrive.jobs FOR VALUES FROM (%L) TO (%L)',
                   v_name, redrive.first_id(v_from), redrive.first_id(v_until));
    EXECUTE format('CREATE TABLE redrive.done_%s PARTITION OF redrive.done FOR VALUES FROM (%s) TO (%s)',
                   v_name, v_from, v_until);
    EXECUTE format('CREATE TABLE redrive.attempts_%s PARTITION OF redrive.attempts FOR VALUES FROM (%s) TO (%s)',
                   v_name, v_from, v_until);
    RETURN true;
EXCEPTION
    WHEN check_violation OR lock_not_available OR duplicate_table THEN
        RETURN false;
END $$;

CREATE FUNCTION redrive.move_cursor(p_queue integer, p_band smallint, p_kinds text, p_last bigint, p_to bigint[], p_seen pg_snapshot, p_swept_at bigint, p_sweep_ms bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO redrive.cursors (queue, priority, kinds, n, due_at, seq, swept_at, sweep_ms, seen)
    VALUES (p_queue, p_band, p_kinds, coalesce(p_last, 0) + 1, p_to[1], p_to[2], p_swept_at, p_sweep_ms, p_seen);
    IF p_last % 1000 = 0 THEN
        DELETE FROM redrive.freed AS f
        USING (SELECT o.seen FROM redrive.cursors AS o
               WHERE o.queue = p_queue AND o.priority = p_band AND o.kinds = p_kinds ORDER BY o.n LIMIT 1) AS first
        WHERE f.queue = p_queue AND f.priority = p_band AND pg_visible_in_snapshot(f.by, first.seen);
        -- But for rows that someone has locked: he may take his time, and we have the lane.
        DELETE FROM redrive.cursors AS c WHERE (c.queue, c.priority, c.kinds, c.n) IN (
            SELECT o.queue, o.priority, o.kinds, o.n FROM redrive.cursors AS o
            WHERE o.queue = p_queue AND o.priority = p_band AND o.kinds = p_kinds AND o.n < p_last
            FOR UPDATE SKIP LOCKED);
    END IF;
END $$;

CREATE FUNCTION redrive.name_mistakes(p_new jsonb) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    AS $$
DECLARE
    v_wrong text[] := '{}';
    v_name text;
    v_bytes integer;
BEGIN
    IF NOT p_new ? 'kind' THEN
        v_wrong := v_wrong || 'kind is needed; write which handler is meant, such as "kind": "mail"'::text;
    END IF;
    FOREACH v_name IN ARRAY '{kind,queue,key,destination,orderingKey}'::text[] LOOP
        CONTINUE WHEN NOT p_new ? v_name;
        v_bytes := octet_length(p_new ->> v_name);
        IF jsonb_typeof(p_new -> v_name) <> 'string' THEN
            v_wrong := v_wrong || format('%s: %s is not text; write it in quotation marks', v_name, p_new -> v_name);
        ELSIF v_bytes NOT BETWEEN 1 AND 256 THEN
            v_wrong := v_wrong || format('its %s has %s bytes: write 1 to 256', v_name, v_bytes);
        ELSIF v_name = 'destination' AND p_new ->> v_name ~ '[\u0001-\u001f\u007f-\u009f]' THEN
            v_wrong := v_wrong || format('its destination %s has control characters: leave them out', p_new -> v_name);
        END IF;
    END LOOP;
    IF p_new ? 'labels' THEN
        IF jsonb_typeof(p_new -> 'labels') <> 'object' THEN
            v_wrong := v_wrong || format('labels is %s; write an object of texts, {"customer": "7"}', p_new -> 'labels');
        ELSIF EXISTS (SELECT 1 FROM jsonb_each(p_new -> 'labels') AS l WHERE jsonb_typeof(l.value) <> 'string') THEN
            v_wrong := v_wrong || 'labels has values that are not text; write them in quotation marks'::text;
        ELSIF (SELECT count(*) > 32 OR max(octet_length(l.key) + octet_length(l.value)) > 256
               FROM jsonb_each_text(p_new -> 'labels') AS l) THEN
            v_wrong := v_wrong || 'its labels are too many or too long: at most 32 of 256 bytes'::text;
        ELSIF p_new -> 'labels' ? '' THEN
            v_wrong := v_wrong || 'one of its labels has no name: give it one'::text;
        END IF;
    END IF;
    RETURN v_wrong;
END $$;

CREATE FUNCTION redrive.never() RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT 253402207200000
$$;

CREATE FUNCTION redrive.new_id(p_now bigint) RETURNS uuid
    LANGUAGE sql
    AS $$
    SELECT (lpad(to_hex(p_now), 12, '0') || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid
$$;

CREATE FUNCTION redrive.next_due(p_queue integer, p_band smallint, p_at bigint[], p_turn bigint[], p_suspect boolean, p_kinds text[], p_limited text[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_limit integer := 4;  v_found record;
BEGIN
    -- Most often there is nothing at all, and this is quick.
    IF NOT EXISTS (
        SELECT 1 FROM redrive.live AS l
        WHERE l.queue = p_queue AND l.priority = p_band AND l.ordering_key IS NULL AND l.line IS NULL
          AND (l.due_at, l.seq) > (p_at[1], p_at[2])
    ) AND NOT EXISTS (
        SELECT 1 FROM redrive.live AS l
        WHERE l.queue = p_queue AND l.priority = p_band AND l.ordering_key IS NOT NULL AND NOT l.held AND l.line IS NULL
          AND (l.due_at, l.seq) > (p_turn[1], p_turn[2])
    ) THEN
        RETURN NULL;
    END IF;
    LOOP
        v_found := redrive.next_in_band(p_queue, p_band, p_at[1], p_at[2], p_turn[1], p_turn[2],
                                        9223372036854775807, 0, v_limit, true, p_kinds, '{}', '{}', p_limited);
        FOR j IN 1 .. coalesce(cardinality(v_found.seqs), 0) LOOP
            IF p_suspect OR NOT v_found.suspects[j] THEN
                RETURN v_found.dues[j];
            END IF;
        END LOOP;
        IF v_found.seen < v_limit THEN
            RETURN NULL;
        END IF;
        p_at := v_found.last;
        p_turn := v_found.last;
        v_limit := least(v_limit * 4, 4096);
    END LOOP;
END $$;

CREATE FUNCTION redrive.next_expiry(p_queue integer, p_suspect boolean) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM redrive.live AS l WHERE l.queue = p_queue AND l.expires_at IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT l.expires_at FROM redrive.live AS l
        WHERE l.queue = p_queue AND l.expires_at IS NOT NULL AND (p_suspect OR l.crashes = 0)
          AND (l.seq, l.attempt) NOT IN (SELECT r.seq, r.attempt FROM redrive.running AS r)
        ORDER BY l.expires_at LIMIT 1);
END $$;

CREATE FUNCTION redrive.next_in_band(p_queue integer, p_band smallint, p_due bigint, p_seq bigint, p_turn_due bigint, p_turn_seq bigint, p_until bigint, p_now bigint, p_limit integer, p_special boolean, p_kinds text[], p_taken bigint[], p_taken_attempts integer[], p_limited text[], OUT seqs bigint[], OUT attempts integer[], OUT dues bigint[], OUT ids uuid[], OUT suspects boolean[], OUT keys text[], OUT gates text[], OUT retries boolean[], OUT special boolean, OUT fresh boolean, OUT seen bigint, OUT last bigint[], OUT running integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_running bigint[];  v_running_attempts integer[];
BEGIN
    -- One statement, and so one snapshot: between two, a job could be settled and its claim be gone.
    SELECT a.seqs, a.attempts, a.dues, a.ids, a.suspects, a.keys, a.gates, a.retries, a.special, a.fresh, a.seen,
           r.seqs, r.attempts
    INTO seqs, attempts, dues, ids, suspects, keys, gates, retries, special, fresh, seen, v_running, v_running_attempts
    FROM (
        SELECT array_agg(f.seq) AS seqs, array_agg(f.attempt) AS attempts, array_agg(f.due_at) AS dues,
               array_agg(f.id) AS ids, array_agg(f.crashes > 0) FILTER (WHERE p_special) AS suspects,
               array_agg(f.ordering_key) FILTER (WHERE p_special) AS keys,
               array_agg(f.gate) FILTER (WHERE p_special) AS gates,
               array_agg(f.failures > 0) FILTER (WHERE p_special) AS retries,
               bool_or(f.crashes > 0 OR f.ordering_key IS NOT NULL OR f.gate IS NOT NULL) AS special,
               bool_and(f.attempt + f.generation = 0 AND f.reason IS NULL AND f.last_delay_ms IS NULL) AS fresh,
               count(*) AS seen, min(f.seq) AS lowest, max(f.seq) AS highest
        FROM (
            SELECT b.*, CASE WHEN b.destination IS NOT NULL AND redrive.is_gated(b.destination, p_limited)
                             THEN b.destination END AS gate
            FROM (
                (SELECT l.due_at, l.seq, l.attempt, l.id, l.crashes, l.ordering_key, l.destination, l.failures,
                        l.generation, l.reason, l.last_delay_ms
                 FROM redrive.live AS l
                 WHERE l.queue = p_queue AND l.priority = p_band AND l.ordering_key IS NULL AND l.line IS NULL
                   AND l.due_at <= p_until AND (l.due_at, l.seq) > (p_due, p_seq)
                   AND (l.expires_at IS NULL OR l.expires_at > p_now)
                   AND (p_kinds IS NULL OR (SELECT j.kind FROM redrive.jobs AS j WHERE j.id = l.id) = ANY (p_kinds))
                 ORDER BY l.due_at, l.seq LIMIT p_limit)
                UNION ALL
                (SELECT l.due_at, l.seq, l.attempt, l.id, l.crashes, l.ordering_key, l.destination, l.failures,
                        l.generation, l.reason, l.last_delay_ms
                 FROM redrive.live AS l
                 WHERE l.queue = p_queue AND l.priority = p_band AND l.ordering_key IS NOT NULL AND NOT l.held
                   AND l.line IS NULL
                   AND l.due_at <= p_until AND (l.due_at, l.seq) > (p_turn_due, p_turn_seq)
                   AND (l.expires_at IS NULL OR l.expires_at > p_now)
                   AND (p_kinds IS NULL OR (SELECT j.kind FROM redrive.jobs AS j WHERE j.id = l.id) = ANY (p_kinds))
                 ORDER BY l.due_at, l.seq LIMIT p_limit)
                ORDER BY due_at, seq LIMIT p_limit
            ) AS b
        ) AS f
    ) AS a CROSS JOIN LATERAL (
        SELECT array_agg(listed.seq) AS seqs, array_agg(listed.attempt) AS attempts
        FROM redrive.claims AS c CROSS JOIN LATERAL unnest(c.seqs, c.attempts) AS listed (seq, attempt)
        WHERE c.highest >= a.lowest AND c.lowest <= a.highest
    ) AS r;
    IF seen = 0 THEN
        RETURN;
    END IF;
    last := ARRAY[dues[seen], seqs[seen]];
    running := cardinality(v_running);
    IF v_running IS NULL AND cardinality(p_taken) = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(f.seq), array_agg(f.attempt), array_agg(f.due), array_agg(f.id),
           array_agg(f.suspect) FILTER (WHERE p_special), array_agg(f.key) FILTER (WHERE p_special),
           array_agg(f.gate) FILTER (WHERE p_special), array_agg(f.retry) FILTER (WHERE p_special)
    INTO seqs, attempts, dues, ids, suspects, keys, gates, retries
    FROM unnest(seqs, attempts, dues, ids, suspects, keys, gates, retries)
        AS f (seq, attempt, due, id, suspect, key, gate, retry)
    WHERE (f.seq, f.attempt) NOT IN (
        SELECT * FROM unnest(v_running || p_taken, v_running_attempts || p_taken_attempts));
END $$;

CREATE FUNCTION redrive.next_in_line(p_queue integer, p_to text, p_limit integer, p_retries integer, p_kinds text[], p_suspect boolean, p_let_pass boolean, p_now bigint, p_running text[], OUT seqs bigint[], OUT attempts integer[], OUT alone bigint, OUT alone_attempt integer, OUT ordered boolean, OUT firsts integer, OUT again integer, OUT more boolean, OUT running text[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    v_row record;  v_turn record;  v_taken bigint[] := '{}';
BEGIN
    seqs := '{}';  attempts := '{}';  ordered := false;  firsts := 0;  again := 0;  more := false;  running := p_running;
    FOR v_row IN
        SELECT l.seq, l.attempt, l.crashes > 0 AS suspect, l.ordering_key, l.line
        FROM redrive.live AS l
        WHERE l.destination = p_to AND l.queue = p_queue AND l.line IS NOT NULL
          AND (l.expires_at IS NULL OR l.expires_at > p_now)
          AND (p_kinds IS NULL OR (SELECT j.kind FROM redrive.jobs AS j WHERE j.id = l.id) = ANY (p_kinds))
        ORDER BY l.destination, l.queue, l.line, l.priority DESC, l.due_at, l.seq
    LOOP
        IF firsts + again >= p_limit OR v_row.line = 1 AND again >= p_retries THEN
            more := true;
            EXIT;
        END IF;
        CONTINUE WHEN v_row.suspect AND (NOT p_suspect OR alone IS NOT NULL);
        IF v_row.ordering_key IS NOT NULL THEN
            running := coalesce(running, redrive.keys_running(p_queue));
            v_turn := redrive.take_turn(p_queue, v_row.ordering_key, v_row.seq, p_let_pass, running, p_now);
            IF NOT v_turn.goes THEN
                v_taken := v_taken || v_row.seq;
                CONTINUE;
            END IF;
            running := running || v_row.ordering_key;
            ordered := true;
        END IF;
        v_taken := v_taken || v_row.seq;
        IF v_row.suspect THEN
            alone := v_row.seq;  alone_attempt := v_row.attempt;
        ELSE
            seqs := seqs || v_row.seq;  attempts := attempts || v_row.attempt;
        END IF;
        firsts := firsts + (v_row.line = 0)::integer;
        again := again + (v_row.line = 1)::integer;
    END LOOP;
    IF cardinality(v_taken) > 0 THEN
        UPDATE redrive.live AS l
        SET line = NULL,
            in_line_ms = CASE WHEN l.seq = ANY (seqs || alone)
                              THEN coalesce(l.in_line_ms, 0) + greatest(p_now - l.due_at, 0) ELSE l.in_line_ms END
        WHERE l.seq = ANY (v_taken);
    END IF;
END $$;

CREATE FUNCTION redrive.notice(p_key text, p_at bigint, p_rule text, p_what text, p_job uuid, p_message text, p_kept bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_n bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(1380209240, 1);
    INSERT INTO redrive.notices (key, at, rule, what, job, message)
    VALUES (p_key, p_at, p_rule, p_what, p_job, p_message)
    ON CONFLICT (key) DO NOTHING RETURNING n INTO v_n;
    DELETE FROM redrive.notices WHERE n <= v_n - p_kept;
    RETURN v_n;
END $$;

CREATE FUNCTION redrive.now_ms() RETURNS bigint
    LANGUAGE sql
    AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

CREATE FUNCTION redrive.places_at(p_seqs bigint[], p_fences integer[], p_fence integer) RETURNS bigint[]
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
    IF p_fence = ALL (p_fences) THEN
        RETURN p_seqs;
    END IF;
    RETURN ARRAY(SELECT s.seq FROM unnest(p_seqs, p_fences) AS s (seq, fence) WHERE s.fence = p_fence);
END $$;

CREATE FUNCTION redrive.policy_id(p_version integer, p_body text) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_id integer;
BEGIN
    SELECT p.id INTO v_id FROM redrive.policies AS p
    WHERE hashtextextended(p.body, 0) = hashtextextended(p_body, 0)
      AND hashtextextended(p.body, 1) = hashtextextended(p_body, 1)
    ORDER BY p.id LIMIT 1;
    IF v_id IS NULL THEN
        INSERT INTO redrive.policies (version, body) VALUES (p_version, p_body) RETURNING policies.id INTO v_id;
    END IF;
    RETURN v_id;
END $$;

CREATE FUNCTION redrive.policy_mistakes(p_policy jsonb) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    AS $$
DECLARE
    c_known CONSTANT text[] := '{preset,backoff,jitter,maxAttempts,maxRetries,giveUpAfter,deadline,startBy,heldCounts,timeout,retryAfter,rules,unknown,maxCrashes,notify,name}';
    v_wrong text[] := redrive.unknown_fields('policy.', p_policy, c_known);
    v_name text;  v_asked jsonb := coalesce(p_policy -> 'retryAfter', '{}');
BEGIN
    v_wrong := v_wrong || redrive.backoff_mistakes(p_policy -> 'backoff') || redrive.jitter_mistakes(p_policy -> 'jitter')
        || redrive.rule_mistakes(p_policy -> 'rules');
    FOREACH v_name IN ARRAY '{maxAttempts,maxRetries,maxCrashes}'::text[] LOOP
        v_wrong := v_wrong || redrive.count_mistakes('policy.' || v_name, p_policy -> v_name);
    END LOOP;
    IF p_policy ?& '{maxAttempts,maxRetries}' THEN
        v_wrong := v_wrong || 'policy.maxAttempts and maxRetries are both written; keep one of them'::text;
    END IF;
    IF p_policy -> 'maxAttempts' = '0' THEN
        v_wrong := v_wrong || 'policy.maxAttempts is 0: it would never run; write at least 1, or "maxRetries": 0 for no retry'::text;
    END IF;
    IF p_policy -> 'maxCrashes' = '0' THEN
        v_wrong := v_wrong || 'policy.maxCrashes is 0: a job must be allowed to run; write at least 1'::text;
    END IF;
    FOREACH v_name IN ARRAY '{giveUpAfter,deadline,startBy,timeout}'::text[] LOOP
        v_wrong := v_wrong || redrive.span_mistakes('policy.' || v_name, p_policy -> v_name,
                                                    'no time is left for anything; write at least 1ms, or leave it out');
    END LOOP;
    IF jsonb_typeof(v_asked) <> 'object' THEN
        v_wrong := v_wrong || format('policy.retryAfter is %s; write an object, {…}', v_asked);
    ELSE
        v_wrong := v_wrong || redrive.unknown_fields('policy.retryAfter.', v_asked, '{honour,min,max}')
            || redrive.span_mistakes('policy.retryAfter.min', v_asked -> 'min', NULL)
            || redrive.span_mistakes('policy.retryAfter.max', v_asked -> 'max', NULL)
            || redrive.truth_mistakes('policy.retryAfter.honour', v_asked -> 'honour');
        IF (redrive.read_span(coalesce(v_asked -> 'min', '"0s"'))).ms > (redrive.read_span(coalesce(v_asked -> 'max', '"1d"'))).ms THEN
            v_wrong := v_wrong || 'policy.retryAfter.min is above retryAfter.max; write a min of at most the max'::text;
        END IF;
    END IF;
    v_wrong := v_wrong || redrive.truth_mistakes('policy.notify', p_policy -> 'notify')
        || redrive.truth_mistakes('policy.heldCounts', p_policy -> 'heldCounts')
        || redrive.word_mistakes('policy.unknown', p_policy -> 'unknown', '{transient,rate_limited,permanent,needs_auth,unknown_outcome}');
    IF jsonb_typeof(p_policy -> 'name') <> 'string' THEN
        v_wrong := v_wrong || format('policy.name: %s is not text; write it in quotation marks', p_policy -> 'name');
    END IF;
    IF jsonb_typeof(p_policy -> 'preset') <> 'string' THEN
        v_wrong := v_wrong || format('policy.preset: %s is not text; write it in quotation marks', p_policy -> 'preset');
    END IF;
    RETURN v_wrong;
END $$;

CREATE FUNCTION redrive.put(p_id uuid[], p_queue integer[], p_policy integer[], p_created bigint[], p_run_at bigint[], p_checksum bigint[], p_priority smallint[], p_kind text[], p_payload text[], p_tally_queue integer[], p_tally jsonb[], p_destination text[] DEFAULT NULL::text[], p_author text[] DEFAULT NULL::text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_seqs CONSTANT bigint[] := ARRAY(SELECT nextval('redrive.places') FROM generate_series(1, cardinality(p_id)));
BEGIN
    IF p_destination IS NULL AND p_author IS NULL THEN
        INSERT INTO redrive.jobs (id, seq, queue, policy, created_at, run_at, checksum, priority, kind, payload)
        SELECT * FROM unnest(p_id, v_seqs, p_queue, p_policy, p_created, p_run_at, p_checksum, p_priority, p_kind,
                             p_payload);
    ELSE
        INSERT INTO redrive.jobs (id, seq, queue, policy, created_at, run_at, checksum, priority, kind, payload,
                                  destination, author)
        SELECT * FROM unnest(p_id, v_seqs, p_queue, p_policy, p_created, p_run_at, p_checksum, p_priority, p_kind,
                             p_payload, coalesce(p_destination, '{}'), coalesce(p_author, '{}'));
    END IF;
    IF p_destination IS NULL THEN
        INSERT INTO redrive.live (seq, id, due_at, queue, priority)
        SELECT * FROM unnest(v_seqs, p_id, p_run_at, p_queue, p_priority);
    ELSE
        INSERT INTO redrive.live (seq, id, due_at, queue, priority, destination)
        SELECT * FROM unnest(v_seqs, p_id, p_run_at, p_queue, p_priority, p_destination);
    END IF;
    INSERT INTO redrive.tallies (queue, counts) SELECT * FROM unnest(p_tally_queue, p_tally);
END $$;

CREATE FUNCTION redrive.queue_id(p_name text) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION redrive.read_policy(p_value jsonb, OUT body text, OUT mistakes text[], OUT deadline bigint, OUT start_by bigint, OUT held_counts boolean) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    v_policy jsonb := jsonb_strip_nulls(p_value);
    v_name CONSTANT text := CASE jsonb_typeof(p_value) WHEN 'string' THEN p_value #>> '{}' ELSE p_value ->> 'preset' END;
    v_preset jsonb;
BEGIN
    mistakes := '{}';
    IF p_value IS NULL OR v_name IS NOT NULL THEN
        SELECT p.body INTO body FROM redrive.presets AS p
        WHERE p.name = coalesce(v_name, '') AND (p_value IS NULL OR v_name <> '');
        IF NOT FOUND THEN
            mistakes := ARRAY[format('policy: there is no preset %s; write one of %s', to_json(v_name),
                (SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM redrive.presets AS p WHERE p.name <> ''))];
            RETURN;
        END IF;
        v_preset := body;
    END IF;
    IF jsonb_typeof(p_value) = 'object' THEN
        mistakes := redrive.policy_mistakes(v_policy);
        IF v_policy ?| '{maxAttempts,maxRetries}' THEN
            v_preset := v_preset - '{maxAttempts,maxRetries}'::text[];
        END IF;
        IF v_preset IS NOT NULL AND mistakes = '{}' THEN
            v_policy := v_preset || (v_policy - 'preset') || jsonb_build_object(
                'retryAfter', (v_preset -> 'retryAfter') || coalesce(v_policy -> 'retryAfter', '{}'));
            -- Together they may be wrong where neither is.
            mistakes := redrive.policy_mistakes(v_policy);
        END IF;
        body := v_policy::text;
    ELSIF body IS NULL THEN
        mistakes := ARRAY[format('policy is %s; write an object, {…}, or the name of a preset', p_value)];
    ELSE
        v_policy := v_preset;
    END IF;
    IF mistakes = '{}' THEN
        deadline := (SELECT s.ms FROM redrive.read_span(v_policy -> 'deadline') AS s WHERE v_policy ? 'deadline');
        start_by := (SELECT s.ms FROM redrive.read_span(v_policy -> 'startBy') AS s WHERE v_policy ? 'startBy');
        held_counts := coalesce((v_policy ->> 'heldCounts')::boolean, true);
    END IF;
END $$;

CREATE FUNCTION redrive.read_span(p_value jsonb, OUT ms numeric, OUT mistake text) RETURNS record
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
DECLARE
    v_rest text;  v_part text[];  v_scale integer;
BEGIN
    ms := 0;
    IF jsonb_typeof(p_value) = 'number' THEN
        ms := round((p_value #>> '{}')::numeric * 1000);
        IF ms NOT BETWEEN 0 AND 9e15 THEN
            mistake := format('%s is not a number of seconds; write 0 or more, or text such as "90s"', p_value);
        END IF;
        RETURN;
    ELSIF jsonb_typeof(p_value) <> 'string' THEN
        mistake := format('%s is not a duration; write it with a unit, such as "90s"', p_value);
        RETURN;
    END IF;
    v_rest := regexp_replace(p_value #>> '{}', '^\s+|\s+$', '', 'g');
    IF v_rest = '' THEN
        mistake := 'a duration is missing; write it with a unit, such as "90s" or "14d"';
    ELSIF v_rest LIKE '-%' THEN
        mistake := format('%s is negative; write a duration of 0s or more, such as "90s"', p_value);
    END IF;
    WHILE v_rest <> '' AND mistake IS NULL LOOP
        v_part := regexp_match(v_rest, '^([0-9.]*)\s*([[:alpha:]]*)\s*(.*)$');
        v_scale := CASE v_part[2] WHEN 'w' THEN 604800000 WHEN 'd' THEN 86400000 WHEN 'h' THEN 3600000
                                  WHEN 'm' THEN 60000 WHEN 's' THEN 1000 WHEN 'ms' THEN 1 END;
        IF v_part[1] = '' THEN
            mistake := format('%s is not a duration; write a number and a unit, such as "90s" or "1h30m"', p_value);
        ELSIF v_part[2] = '' THEN
            mistake := format('%s has no unit; write "%ss" for seconds (units: ms, s, m, h, d, w)', p_value, v_part[1]);
        ELSIF v_scale IS NULL THEN
            mistake := format('%s has the unknown unit %s; write one of ms, s, m, h, d, w', p_value, to_json(v_part[2]));
        ELSIF v_part[1] !~ '^[0-9]+(\.[0-9]{1,9})?$' THEN
            mistake := format('%s is not a duration; write a number and a unit, such as "1.5s"', p_value);
        ELSIF length(v_part[1]) > 40 OR ms + v_part[1]::numeric * v_scale > 18446744073709551615 THEN
            mistake := format('%s is too long to count; the longest wait is 400d', p_value);
        ELSIF v_part[1]::numeric * v_scale % 1 <> 0 THEN
            mistake := format('%s is finer than a millisecond; write whole milliseconds, such as "15ms"', p_value);
        ELSE
            ms := ms + v_part[1]::numeric * v_scale;
            v_rest := v_part[3];
        END IF;
    END LOOP;
END $_$;

CREATE FUNCTION redrive.read_time(p_value jsonb, OUT ms bigint, OUT mistake text) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    v_text CONSTANT text := p_value #>> '{}';
BEGIN
    IF jsonb_typeof(p_value) = 'string'
       AND v_text ~* '^\d{4}-\d\d-\d\d[t ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(z|[+-]\d\d(:?\d\d)?)$' THEN
        ms := floor(extract(epoch FROM v_text::timestamptz) * 1000);
        RETURN;
    END IF;
    mistake := format('%s is not a time; write it as "2026-11-15T21:18:51Z"', p_value);
EXCEPTION WHEN data_exception THEN
    mistake := format('%s is not a time; write it as "2026-11-15T21:18:51Z"', p_value);
END $_$;

CREATE FUNCTION redrive.refuse(p_what text, p_wrong text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% was not accepted: %', p_what, array_to_string(p_wrong, '; ')
        USING ERRCODE = 'RD400', HINT = 'nothing was stored; correct the job, and enqueue it again after a rollback';
END $$;

CREATE FUNCTION redrive.replace(p_seq bigint, p_key text, p_new jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
        ordering_key = n.ordering_key, destination = n.destination, labels = n.labels, payload = n.payload,
        author = n.author
    FROM jsonb_to_record(p_new) AS n (
        queue integer, policy integer, due_at bigint, checksum bigint, priority smallint, external boolean,
        deadline bigint, start_by bigint, timeout_ms bigint, revived_at bigint, parent uuid, kind text, unique_key text,
        ordering_key text, destination text, labels text, payload text, author text)
    WHERE j.id = v_old.id;
    DELETE FROM redrive.live AS l WHERE l.seq = p_seq;
    IF v_old.ordering_key IS NOT NULL THEN
        PERFORM redrive.let_next_go(v_old.queue, v_old.ordering_key);
    END IF;
    PERFORM redrive.stand(p_seq, p_new);
    PERFORM redrive.know_band((p_new ->> 'queue')::integer, (p_new ->> 'priority')::smallint);
END $$;

CREATE TABLE redrive.jobs (
    id uuid NOT NULL,
    seq bigint NOT NULL,
    queue integer NOT NULL,
    policy integer NOT NULL,
    created_at bigint NOT NULL,
    run_at bigint NOT NULL,
    checksum bigint,
    priority smallint NOT NULL,
    external boolean DEFAULT false NOT NULL,
    deadline bigint,
    start_by bigint,
    timeout_ms bigint,
    revived_at bigint,
    parent uuid,
    kind text NOT NULL,
    unique_key text,
    ordering_key text,
    destination text,
    labels text,
    payload text NOT NULL,
    author text
)
PARTITION BY RANGE (id);

CREATE FUNCTION redrive.rest(j redrive.jobs) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT json_build_object(
        'key', j.unique_key, 'ordering_key', j.ordering_key, 'destination', j.destination, 'parent', j.parent,
        'labels', j.labels::json, 'deadline', j.deadline, 'start_by', j.start_by, 'timeout', j.timeout_ms,
        'revived_at', j.revived_at, 'external', j.external)::text
$$;

CREATE FUNCTION redrive.rule_mistakes(p_rules jsonb) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
DECLARE
    v_wrong text[] := '{}';  v_rule jsonb;  v_path text;  v_twice record;
BEGIN
    IF p_rules IS NULL THEN
        RETURN '{}';
    ELSIF jsonb_typeof(p_rules) <> 'array' THEN
        RETURN ARRAY[format('policy.rules: %s is not a list; write […]', p_rules)];
    ELSIF jsonb_array_length(p_rules) > 100 THEN
        RETURN ARRAY[format('policy.rules has %s entries; write at most 100', jsonb_array_length(p_rules))];
    END IF;
    FOR i IN 0 .. jsonb_array_length(p_rules) - 1 LOOP
        v_rule := p_rules -> i;
        v_path := format('policy.rules[%s]', i);
        IF jsonb_typeof(v_rule) <> 'object' OR NOT v_rule ?& '{on,class}' THEN
            v_wrong := v_wrong || format('%s is %s; write {"on": "5xx", "class": "transient"}', v_path, v_rule);
            CONTINUE;
        END IF;
        v_wrong := v_wrong || redrive.unknown_fields(v_path || '.', v_rule, '{on,class}')
            || redrive.word_mistakes(v_path || '.class', v_rule -> 'class', '{transient,rate_limited,permanent,needs_auth,unknown_outcome}');
        IF v_rule ->> 'on' !~ '^(code:\s*\S.*|text:\s*\S.*|any|[1-5]xx|[1-5][0-9]{2})$' THEN
            v_wrong := v_wrong || format('%s: %s names no failures; write a status ("429"), a class of them ("5xx"), "code:TIMEOUT", '
                                         '"text:a phrase" or "any"', v_path, v_rule -> 'on');
        END IF;
    END LOOP;
    SELECT r ->> 'on' AS what INTO v_twice FROM jsonb_array_elements(p_rules) AS r WHERE jsonb_typeof(r) = 'object'
    GROUP BY 1 HAVING count(DISTINCT r ->> 'class') > 1 LIMIT 1;
    IF FOUND THEN
        v_wrong := v_wrong || format('policy.rules has "%s" twice, with different classes; keep one of them', v_twice.what);
    END IF;
    RETURN v_wrong;
END $_$;

CREATE FUNCTION redrive.running_by_queue() RETURNS TABLE(queue integer, jobs bigint)
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
BEGIN
    RETURN QUERY
    SELECT l.queue, count(*) FROM redrive.running AS r JOIN redrive.live AS l ON l.seq = r.seq AND l.attempt = r.attempt
    GROUP BY l.queue;
END $$;

CREATE FUNCTION redrive.settle(p_lanes integer[], p_claims uuid[], p_counts integer[], p_seqs bigint[], p_fences integer[], p_started bigint[], p_ended bigint[], p_ids uuid[], p_queues integer[], p_failures integer[], p_w_seq bigint[], p_w_fence integer[], p_w_at bigint[], p_w_failures integer[], p_w_crashes integer[], p_w_snoozes integer[], p_w_holds integer[], p_w_interruptions integer[], p_w_reason text[], p_w_delay bigint[], p_w_expires bigint[], p_f_seq bigint[], p_f_fence integer[], p_f_id uuid[], p_f_queue integer[], p_f_started bigint[], p_f_at bigint[], p_f_failures integer[], p_f_crashes integer[], p_f_snoozes integer[], p_f_holds integer[], p_f_interruptions integer[], p_f_generation integer[], p_f_cancelled boolean[], p_f_output text[], p_f_why text[], p_f_fingerprint text[], p_f_key text[], p_a_seq bigint[], p_a_attempt integer[], p_a_started bigint[], p_a_ended bigint[], p_a_next bigint[], p_a_said integer[], p_said_ending text[], p_said_failure text[], p_said_fingerprint text[], p_said_rule text[], p_turn_queue integer[], p_turn_key text[], p_trim_seq bigint[], p_trim_after integer, p_trim_until integer[], p_missed_claim uuid[], p_missed_seq bigint[], p_tally_queue integer[], p_tally jsonb[], p_note_at bigint[], p_note_job uuid[], p_note_what text[], p_note_kind text[], p_note_queue text[], p_note_message text[], p_holder uuid, p_now bigint, p_known bigint[], p_known_attempts integer[], p_again_holder uuid, p_again uuid, p_again_at bigint, p_again_queues integer[], p_again_seqs bigint[], p_again_attempts integer[], p_g_upto integer[], p_g_fence integer[], p_g_failures integer[], p_g_delay bigint[], p_g_expires bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    v_count bigint;  v_paused integer[];  v_ended bigint := 0;  v_fence integer;  v_again integer := 0;
BEGIN
    IF cardinality(p_lanes) > 0 THEN
        PERFORM redrive.lock_lanes(p_lanes);
    END IF;
    IF p_holder IS NOT NULL THEN
        PERFORM 1 FROM redrive.holders AS h WHERE h.id = p_holder AND h.until <= p_now FOR UPDATE;
        IF NOT FOUND OR EXISTS (
            SELECT 1
            FROM redrive.running AS r JOIN redrive.live AS l ON l.seq = r.seq AND l.attempt = r.attempt
            WHERE r.holder = p_holder
              AND (r.seq, r.attempt) NOT IN (SELECT k.seq, k.attempt FROM unnest(p_known, p_known_attempts) AS k (seq, attempt))
        ) THEN
            RAISE EXCEPTION 'the holder lives, or holds more than is known' USING ERRCODE = 'RD410';
        END IF;
    END IF;
    IF p_again IS NOT NULL THEN
        -- Kept from being ended while this claim is made.
        PERFORM 1 FROM redrive.holders AS h WHERE h.id = p_again_holder FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the holder is gone' USING ERRCODE = 'RD411';
        END IF;
        v_paused := ARRAY(SELECT q.id FROM redrive.queues AS q WHERE q.id = ANY (p_again_queues) AND q.paused);
        IF cardinality(v_paused) > 0 THEN
            RAISE EXCEPTION 'a queue is paused' USING ERRCODE = 'RD411', DETAIL = array_to_string(v_paused, ' ');
        END IF;
    END IF;
    PERFORM 1 FROM redrive.claims AS c WHERE c.id = ANY (p_claims || p_missed_claim) ORDER BY c.id FOR UPDATE;
    UPDATE redrive.claims AS c SET unsettled = c.unsettled - s.settled
    FROM unnest(p_claims, p_counts) AS s (id, settled) WHERE c.id = s.id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count <> cardinality(p_claims) THEN
        RAISE EXCEPTION 'a claim is gone' USING ERRCODE = 'RD409';
    END IF;
    IF cardinality(p_seqs) > 0 THEN
        -- One attempt after the other: to name the places alone is quicker than to name each with its attempt.
        FOR v_fence IN SELECT DISTINCT f FROM unnest(p_fences) AS f ORDER BY f LOOP
            DELETE FROM redrive.live AS l
            WHERE l.seq = ANY (redrive.places_at(p_seqs, p_fences, v_fence)) AND l.attempt = v_fence;
            GET DIAGNOSTICS v_count = ROW_COUNT;
            v_ended := v_ended + v_count;
        END LOOP;
        IF v_ended <> cardinality(p_seqs) THEN
            RAISE EXCEPTION 'a lease was lost' USING ERRCODE = 'RD409';
        END IF;
        INSERT INTO redrive.done (seq, id, queue, attempt, failures, started_at, finished_at)
        SELECT e.seq, e.id, e.queue, e.fence + 1, e.failures, e.started_at, e.ended_at
        FROM unnest(p_seqs, p_ids, p_queues, p_fences, p_failures, p_started, p_ended)
            AS e (seq, id, queue, fence, failures, started_at, ended_at);
    END IF;
    IF cardinality(p_w_seq) > 0 THEN
        UPDATE redrive.live AS l
        SET due_at = s.at, attempt = s.fence + 1, failures = s.failures, crashes = s.crashes, snoozes = s.snoozes,
            holds = s.holds, interruptions = s.interruptions, reason = s.reason,
            last_delay_ms = coalesce(s.delay, l.last_delay_ms), expires_at = s.expires_at, held = false
        FROM unnest(p_w_seq, p_w_fence, p_w_at, p_w_failures, p_w_crashes, p_w_snoozes, p_w_holds, p_w_interruptions,
                    p_w_reason, p_w_delay, p_w_expires)
            AS s (seq, fence, at, failures, crashes, snoozes, holds, interruptions, reason, delay, expires_at)
        WHERE l.seq = s.seq AND l.attempt = s.fence;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count <> cardinality(p_w_seq) THEN
            RAISE EXCEPTION 'a lease was lost' USING ERRCODE = 'RD409';
        END IF;
    END IF;
    IF p_again IS NOT NULL THEN
        -- The due time stays what it was: no index has to be written.
        FOR i IN 1 .. cardinality(p_g_upto) LOOP
            UPDATE redrive.live AS l
            SET attempt = p_g_fence[i] + 1, failures = p_g_failures[i],
                last_delay_ms = coalesce(p_g_delay[i], l.last_delay_ms), expires_at = p_g_expires[i]
            WHERE l.seq = ANY (p_again_seqs[v_again + 1 : p_g_upto[i]]) AND l.attempt = p_g_fence[i];
            GET DIAGNOSTICS v_count = ROW_COUNT;
            IF v_count <> p_g_upto[i] - v_again THEN
                RAISE EXCEPTION 'a lease was lost' USING ERRCODE = 'RD409';
            END IF;
            v_again := p_g_upto[i];
        END LOOP;
        INSERT INTO redrive.claims (id, holder, claimed_at, lowest, highest, unsettled, ordered, seqs, attempts)
        SELECT p_again, p_again_holder, p_again_at, min(g.seq), max(g.seq), v_again, false, p_again_seqs, p_again_attempts
        FROM unnest(p_again_seqs) AS g (seq);
    END IF;
    IF cardinality(p_f_seq) > 0 THEN
        DELETE FROM redrive.live AS l USING unnest(p_f_seq, p_f_fence) AS s (seq, fence)
        WHERE l.seq = s.seq AND l.attempt = s.fence;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count <> cardinality(p_f_seq) THEN
            RAISE EXCEPTION 'a lease was lost' USING ERRCODE = 'RD409';
        END IF;
        INSERT INTO redrive.done (seq, attempt, id, queue, started_at, finished_at, failures, crashes, snoozes, holds,
                                  interruptions, generation, cancelled, output)
        SELECT s.seq, s.fence + 1, s.id, s.queue, s.started_at, s.at, s.failures, s.crashes, s.snoozes, s.holds,
               s.interruptions, s.generation, s.cancelled, s.output
        FROM unnest(p_f_seq, p_f_fence, p_f_id, p_f_queue, p_f_started, p_f_at, p_f_failures, p_f_crashes, p_f_snoozes,
                    p_f_holds, p_f_interruptions, p_f_generation, p_f_cancelled, p_f_output, p_f_why)
            AS s (seq, fence, id, queue, started_at, at, failures, crashes, snoozes, holds, interruptions, generation,
                  cancelled, output, why)
        WHERE s.why IS NULL;
        IF cardinality(array_remove(p_f_why, NULL)) > 0 THEN
            INSERT INTO redrive.dead (seq, attempt, id, queue, started_at, finished_at, failures, crashes, snoozes, holds,
                                      interruptions, generation, why, fingerprint)
            SELECT s.seq, s.fence + 1, s.id, s.queue, s.started_at, s.at, s.failures, s.crashes, s.snoozes, s.holds,
                   s.interruptions, s.generation, s.why, s.fingerprint
            FROM unnest(p_f_seq, p_f_fence, p_f_id, p_f_queue, p_f_started, p_f_at, p_f_failures, p_f_crashes, p_f_snoozes,
                        p_f_holds, p_f_interruptions, p_f_generation, p_f_why, p_f_fingerprint)
                AS s (seq, fence, id, queue, started_at, at, failures, crashes, snoozes, holds, interruptions, generation,
                      why, fingerprint)
            WHERE s.why IS NOT NULL;
        END IF;
        DELETE FROM redrive.keys AS k USING unnest(p_f_key, p_f_seq) AS s (key, seq)
        WHERE s.key IS NOT NULL AND k.key = s.key AND k.seq = s.seq;
    END IF;
    IF cardinality(p_a_seq) > 0 THEN
        INSERT INTO redrive.attempts (seq, attempt, started_at, ended_at, ending, failure, fingerprint, rule, next_at)
        SELECT a.seq, a.attempt, a.started_at, a.ended_at, p_said_ending[a.said], p_said_failure[a.said],
               p_said_fingerprint[a.said], p_said_rule[a.said], a.next_at
        FROM unnest(p_a_seq, p_a_attempt, p_a_started, p_a_ended, p_a_next, p_a_said)
            AS a (seq, attempt, started_at, ended_at, next_at, said);
    END IF;
    IF cardinality(p_trim_seq) > 0 THEN
        DELETE FROM redrive.attempts AS a USING unnest(p_trim_seq, p_trim_until) AS t (seq, until)
        WHERE a.seq = t.seq AND a.attempt > p_trim_after AND a.attempt <= t.until;
    END IF;
    FOR i IN 1 .. cardinality(p_turn_queue) LOOP
        PERFORM redrive.let_next_go(p_turn_queue[i], p_turn_key[i]);
    END LOOP;
    FOR i IN 1 .. cardinality(p_missed_claim) LOOP
        UPDATE redrive.claims AS c
        SET unsettled = c.unsettled - 1, lost = array_remove(c.lost, p_missed_seq[i]),
            lost_jobs = array_remove(c.lost_jobs, c.lost_jobs[array_position(c.lost, p_missed_seq[i])])
        WHERE c.id = p_missed_claim[i] AND p_missed_seq[i] = ANY (c.lost);
    END LOOP;
    DELETE FROM redrive.claims AS c WHERE c.id = ANY (p_claims || p_missed_claim) AND c.unsettled <= 0;
    IF p_holder IS NOT NULL THEN
        DELETE FROM redrive.claims AS c WHERE c.holder = p_holder;
        DELETE FROM redrive.holders AS h WHERE h.id = p_holder;
    END IF;
    PERFORM redrive.tell(p_tally_queue, p_tally, p_note_at, p_note_job, p_note_what, p_note_kind, p_note_queue,
                         p_note_message);
END $$;

CREATE FUNCTION redrive.span_mistakes(p_path text, p_value jsonb, p_zero text) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    AS $$
DECLARE
    v_read record;
BEGIN
    IF p_value IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT * INTO v_read FROM redrive.read_span(p_value);
    IF v_read.mistake IS NOT NULL THEN
        RETURN ARRAY[format('%s: %s', p_path, v_read.mistake)];
    ELSIF v_read.ms = 0 AND p_zero IS NOT NULL THEN
        RETURN ARRAY[format('%s is 0s: %s', p_path, p_zero)];
    ELSIF v_read.ms > 34560000000 THEN
        RETURN ARRAY[format('%s is %s, longer than 400d; write at most 400d', p_path, p_value)];
    END IF;
    RETURN '{}';
END $$;

CREATE FUNCTION redrive.span_seconds(p_span text) RETURNS numeric
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT trim_scale(extract(epoch FROM p_span::interval))
$$;

CREATE FUNCTION redrive.stand(p_seq bigint, p_job jsonb) RETURNS void
    LANGUAGE sql
    AS $$
    INSERT INTO redrive.live (seq, id, due_at, queue, attempt, failures, crashes, snoozes, holds, interruptions,
                              generation, priority, last_delay_ms, expires_at, reason, ordering_key, destination)
    SELECT p_seq, j.id, j.due_at, j.queue, j.attempt, j.failures, j.crashes, j.snoozes, j.holds, j.interruptions,
           j.generation, j.priority, j.last_delay_ms, j.expires_at, j.reason, j.ordering_key, j.destination
    FROM jsonb_to_record(p_job) AS j (
        id uuid, due_at bigint, queue integer, attempt integer, failures integer, crashes integer, snoozes integer,
        holds integer, interruptions integer, generation integer, priority smallint, last_delay_ms bigint,
        expires_at bigint, reason text, ordering_key text, destination text)
$$;

CREATE FUNCTION redrive.steer(p_lanes integer[], p_jobs jsonb, p_tally jsonb, OUT done bigint[], OUT changed bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
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

CREATE FUNCTION redrive.take_back_one(p_seq bigint, p_id uuid, p_attempt integer, p_at bigint, p_started bigint, p_expires bigint, p_reason text) RETURNS text
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
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

CREATE FUNCTION redrive.take_turn(p_queue integer, p_key text, p_seq bigint, p_let_pass boolean, p_running text[], p_now bigint, OUT goes boolean, OUT freed boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    v_before record;
BEGIN
    goes := false;
    freed := false;
    SELECT l.seq, l.held INTO v_before
    FROM redrive.live AS l
    WHERE l.queue = p_queue AND l.ordering_key = p_key AND l.seq < p_seq AND (NOT p_let_pass OR l.due_at <= p_now)
    ORDER BY l.seq LIMIT 1;
    IF NOT (p_key = ANY (p_running)) THEN
        IF v_before.seq IS NULL THEN
            goes := true;
            RETURN;
        END IF;
        -- Nothing of this key runs, so nothing's ending would let the one before go.
        UPDATE redrive.live SET held = false WHERE seq = v_before.seq AND held;
        freed := FOUND;
    END IF;
    UPDATE redrive.live SET held = true WHERE seq = p_seq;
END $$;

CREATE FUNCTION redrive.tell(p_tally_queue integer[], p_tally jsonb[], p_note_at bigint[], p_note_job uuid[], p_note_what text[], p_note_kind text[], p_note_queue text[], p_note_message text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO redrive.tallies (queue, counts) SELECT * FROM unnest(p_tally_queue, p_tally);
    IF cardinality(p_note_at) > 0 THEN
        INSERT INTO redrive.activity (at, job, what, kind, queue, message)
        VALUES (p_note_at, p_note_job, p_note_what, p_note_kind, p_note_queue, p_note_message);
    END IF;
END $$;

CREATE FUNCTION redrive.tell_all(p_body text, p_kept bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_n bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(1380209240, 2);
    v_n := nextval('redrive.news_places');
    INSERT INTO redrive.news (n, body) VALUES (v_n, p_body);
    DELETE FROM redrive.news WHERE n <= v_n - p_kept;
    RETURN v_n;
END $$;

CREATE FUNCTION redrive.tidy(p_notes bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(1380209240, 0) THEN
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM redrive.tallies RETURNING queue, counts, minute
    ), counted AS (
        INSERT INTO redrive.minutes AS m (minute, enqueued, succeeded, failed, dead)
        SELECT g.minute, coalesce(sum((g.counts ->> 'enqueued')::bigint), 0),
               coalesce(sum((g.counts ->> 'succeeded')::bigint), 0),
               coalesce(sum((g.counts ->> 'failures')::bigint), 0), coalesce(sum((g.counts ->> 'dead')::bigint), 0)
        FROM gone AS g
        WHERE g.minute > 0 AND g.counts ?| ARRAY['enqueued', 'succeeded', 'failures', 'dead'] GROUP BY 1
        ON CONFLICT (minute) DO UPDATE
        SET enqueued = m.enqueued + excluded.enqueued, succeeded = m.succeeded + excluded.succeeded,
            failed = m.failed + excluded.failed, dead = m.dead + excluded.dead
    ), sums AS (
        SELECT g.queue, c.key, sum(c.value::bigint) AS value
        FROM gone AS g CROSS JOIN LATERAL jsonb_each_text(g.counts) AS c GROUP BY 1, 2
    )
    INSERT INTO redrive.tallies (queue, counts, minute)
    SELECT s.queue, jsonb_object_agg(s.key, s.value), 0 FROM sums AS s GROUP BY 1;
    DELETE FROM redrive.activity WHERE n <= (
        SELECT max(a.n) FROM (SELECT n, sum(lines) OVER (ORDER BY n DESC) - lines AS newer FROM redrive.activity) AS a
        WHERE a.newer >= p_notes);
    DELETE FROM redrive.minutes WHERE minute < redrive.now_ms() / 60000 - 32 * 24 * 60;
    DELETE FROM redrive.edits AS e WHERE NOT EXISTS (SELECT 1 FROM redrive.jobs AS j WHERE j.id = e.job);
END $$;

CREATE FUNCTION redrive.time_text(p_ms bigint) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT to_char(to_timestamp(p_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

CREATE FUNCTION redrive.truth_mistakes(p_path text, p_value jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN p_value IS NULL OR jsonb_typeof(p_value) = 'boolean' THEN '{}'::text[]
           ELSE ARRAY[format('%s: %s is neither; write true or false', p_path, p_value)] END
$$;

CREATE FUNCTION redrive.unknown_fields(p_path text, p_object jsonb, p_known text[]) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT coalesce(array_agg(format('%s%s is not known here; write one of %s', p_path, f.key, array_to_string(p_known, ', '))), '{}')
    FROM jsonb_object_keys(p_object) AS f (key) WHERE f.key <> ALL (p_known)
$$;

CREATE FUNCTION redrive.word_mistakes(p_path text, p_value jsonb, p_words text[]) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN p_value IS NULL OR jsonb_typeof(p_value) = 'string' AND p_value #>> '{}' = ANY (p_words) THEN '{}'::text[]
           ELSE ARRAY[format('%s: %s is not known; write one of "%s"', p_path, p_value, array_to_string(p_words, '", "'))] END
$$;

CREATE FUNCTION redrive.write_jobs(p_seqs bigint[], p_jobs jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_band record;
BEGIN
    INSERT INTO redrive.jobs (id, queue, policy, created_at, run_at, checksum, priority, external, deadline, start_by,
                              timeout_ms, revived_at, parent, kind, unique_key, ordering_key, destination, labels, payload,
                              author, seq)
    SELECT j.id, j.queue, j.policy, j.created_at, j.due_at, j.checksum, j.priority, coalesce(j.external, false), j.deadline,
           j.start_by, j.timeout_ms, j.revived_at, j.parent, j.kind, j.unique_key, j.ordering_key, j.destination, j.labels,
           j.payload, j.author, j.seq
    FROM ROWS FROM (jsonb_to_recordset(p_jobs) AS (
        id uuid, queue integer, policy integer, created_at bigint, due_at bigint, checksum bigint, priority smallint,
        external boolean, deadline bigint, start_by bigint, timeout_ms bigint, revived_at bigint, parent uuid, kind text,
        unique_key text, ordering_key text, destination text, labels text, payload text, author text), unnest(p_seqs)
    ) AS j (id, queue, policy, created_at, due_at, checksum, priority, external, deadline, start_by, timeout_ms, revived_at,
            parent, kind, unique_key, ordering_key, destination, labels, payload, author, seq);
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

CREATE TABLE redrive.activity (
    n bigint NOT NULL,
    lines integer GENERATED ALWAYS AS (cardinality(at)) STORED,
    at bigint[] NOT NULL,
    job uuid[] NOT NULL,
    what text[] NOT NULL,
    kind text[] NOT NULL,
    queue text[] NOT NULL,
    message text[] NOT NULL
);

ALTER TABLE redrive.activity ALTER COLUMN n ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME redrive.activity_n_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE redrive.attempts (
    seq bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    next_at bigint,
    attempt integer NOT NULL,
    ending text NOT NULL,
    failure text,
    fingerprint text,
    rule text
)
PARTITION BY RANGE (ended_at);

CREATE TABLE redrive.attempts_other (
    seq bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    next_at bigint,
    attempt integer NOT NULL,
    ending text NOT NULL,
    failure text,
    fingerprint text,
    rule text
);

CREATE TABLE redrive.audit (
    n bigint NOT NULL,
    at bigint NOT NULL,
    job uuid,
    id text NOT NULL,
    who text NOT NULL,
    token text,
    what text NOT NULL,
    target text NOT NULL,
    result text NOT NULL,
    detail text NOT NULL
);

ALTER TABLE redrive.audit ALTER COLUMN n ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME redrive.audit_n_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE redrive.bands (
    queue integer NOT NULL,
    priority smallint NOT NULL
);

CREATE TABLE redrive.calls (
    key text NOT NULL,
    digest text NOT NULL,
    answer jsonb,
    at bigint NOT NULL
);

CREATE TABLE redrive.claims (
    id uuid NOT NULL,
    holder uuid NOT NULL,
    claimed_at bigint NOT NULL,
    lowest bigint NOT NULL,
    highest bigint NOT NULL,
    unsettled integer NOT NULL,
    ordered boolean NOT NULL,
    seqs bigint[] NOT NULL,
    attempts integer[] NOT NULL,
    ids uuid[],
    dues bigint[],
    lost bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    lost_jobs uuid[] DEFAULT '{}'::uuid[] NOT NULL
)
WITH (fillfactor='70');
ALTER TABLE ONLY redrive.claims ALTER COLUMN seqs SET STORAGE EXTERNAL;
ALTER TABLE ONLY redrive.claims ALTER COLUMN attempts SET STORAGE EXTERNAL;
ALTER TABLE ONLY redrive.claims ALTER COLUMN ids SET STORAGE EXTERNAL;
ALTER TABLE ONLY redrive.claims ALTER COLUMN dues SET STORAGE EXTERNAL;

CREATE VIEW redrive.contents AS
 SELECT j.id,
    j.seq,
    j.run_at,
    j.queue,
    j.priority,
    j.policy,
    j.created_at,
    j.checksum,
    j.kind,
    j.payload,
        CASE
            WHEN ((j.unique_key IS NULL) AND (j.ordering_key IS NULL) AND (j.labels IS NULL) AND (j.destination IS NULL) AND (j.deadline IS NULL) AND (j.start_by IS NULL) AND (j.timeout_ms IS NULL) AND (j.revived_at IS NULL) AND (j.parent IS NULL) AND (NOT j.external)) THEN NULL::text
            WHEN ((j.parent IS NOT NULL) AND (j.unique_key IS NULL) AND (j.ordering_key IS NULL) AND (j.destination IS NULL) AND (j.deadline IS NULL) AND (j.start_by IS NULL) AND (j.timeout_ms IS NULL) AND (j.revived_at IS NULL) AND (NOT j.external)) THEN (((('{"parent":"'::text || j.parent) || '","labels":'::text) || COALESCE(j.labels, 'null'::text)) || '}'::text)
            ELSE redrive.rest(j.*)
        END AS rest
   FROM redrive.jobs j;

CREATE UNLOGGED TABLE redrive.cursors (
    queue integer NOT NULL,
    priority smallint NOT NULL,
    kinds text NOT NULL,
    n bigint NOT NULL,
    due_at bigint NOT NULL,
    seq bigint NOT NULL,
    swept_at bigint NOT NULL,
    sweep_ms bigint NOT NULL,
    seen pg_snapshot NOT NULL
);

CREATE TABLE redrive.dead (
    seq bigint NOT NULL,
    id uuid NOT NULL,
    started_at bigint,
    finished_at bigint NOT NULL,
    queue integer NOT NULL,
    attempt integer NOT NULL,
    failures integer NOT NULL,
    crashes integer NOT NULL,
    snoozes integer NOT NULL,
    holds integer NOT NULL,
    interruptions integer NOT NULL,
    generation integer NOT NULL,
    why text NOT NULL,
    fingerprint text
);

CREATE TABLE redrive.done (
    seq bigint NOT NULL,
    id uuid NOT NULL,
    started_at bigint,
    finished_at bigint NOT NULL,
    queue integer NOT NULL,
    attempt integer DEFAULT 1 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    snoozes integer DEFAULT 0 NOT NULL,
    holds integer DEFAULT 0 NOT NULL,
    interruptions integer DEFAULT 0 NOT NULL,
    generation integer DEFAULT 0 NOT NULL,
    cancelled boolean DEFAULT false NOT NULL,
    output text
)
PARTITION BY RANGE (finished_at);

CREATE TABLE redrive.holders (
    id uuid NOT NULL,
    until bigint NOT NULL,
    name text NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE redrive.live (
    seq bigint NOT NULL,
    id uuid NOT NULL,
    due_at bigint NOT NULL,
    queue integer NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    snoozes integer DEFAULT 0 NOT NULL,
    holds integer DEFAULT 0 NOT NULL,
    interruptions integer DEFAULT 0 NOT NULL,
    generation integer DEFAULT 0 NOT NULL,
    priority smallint NOT NULL,
    held boolean DEFAULT false NOT NULL,
    last_delay_ms bigint,
    in_line_ms bigint,
    expires_at bigint,
    reason text,
    ordering_key text,
    destination text,
    line smallint,
    waits_for integer
)
WITH (fillfactor='45', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE redrive.policies (
    id integer NOT NULL,
    version integer NOT NULL,
    body text NOT NULL
);

CREATE VIEW redrive.policy_terms AS
 SELECT p.id,
    (b.backoff ->> 'kind'::text) AS kind,
    redrive.span_seconds((b.backoff ->> 'base'::text)) AS base_seconds,
    redrive.span_seconds((b.backoff ->> 'delay'::text)) AS delay_seconds,
    redrive.span_seconds((b.backoff ->> 'cap'::text)) AS cap_seconds,
    ((b.backoff ->> 'factor'::text))::numeric AS factor,
    (b.backoff -> 'delays'::text) AS delays,
    (((p.body)::json ->> 'maxAttempts'::text))::bigint AS max_attempts,
    (((p.body)::json ->> 'maxRetries'::text))::bigint AS max_retries,
        CASE
            WHEN ((b.backoff ->> 'then'::text) = 'stop'::text) THEN json_array_length((b.backoff -> 'delays'::text))
            ELSE NULL::integer
        END AS listed
   FROM (redrive.policies p
     CROSS JOIN LATERAL ( SELECT ((p.body)::json -> 'backoff'::text) AS backoff) b);

CREATE TABLE redrive.queues (
    id integer NOT NULL,
    name text NOT NULL,
    paused boolean DEFAULT false NOT NULL
)
WITH (fillfactor='50');

CREATE VIEW redrive.running AS
 SELECT listed.seq,
    listed.attempt,
    claims.id AS claim,
    claims.holder,
    claims.claimed_at,
    claims.lowest,
    claims.highest
   FROM (redrive.claims
     CROSS JOIN LATERAL UNNEST(claims.seqs, claims.attempts) listed(seq, attempt));

CREATE VIEW redrive.standing AS
 SELECT s.state,
    s.seq,
    s.id,
    s.queue,
    s.at,
    s.next_at,
    s.attempt,
    s.failures,
    s.crashes,
    s.expires_at,
    s.holder,
    s.claimed_at,
    s.finished_at,
    s.changed_at,
    s.reason,
    s.fingerprint,
    s.cancelled
   FROM ( SELECT 'waiting'::text AS state,
            l.seq,
            l.id,
            l.queue,
            l.due_at AS at,
            l.due_at AS next_at,
            l.attempt,
            l.failures,
            l.crashes,
            l.expires_at,
            NULL::uuid AS holder,
            NULL::bigint AS claimed_at,
            NULL::bigint AS finished_at,
            COALESCE(( SELECT a.ended_at
                   FROM redrive.attempts a
                  WHERE (a.seq = l.seq)
                  ORDER BY a.attempt DESC
                 LIMIT 1), ( SELECT j.created_at
                   FROM redrive.jobs j
                  WHERE (j.id = l.id))) AS changed_at,
                CASE
                    WHEN (l.line IS NOT NULL) THEN 'held'::text
                    WHEN l.held THEN 'order'::text
                    ELSE COALESCE(l.reason, 'scheduled'::text)
                END AS reason,
            NULL::text AS fingerprint,
            false AS cancelled
           FROM redrive.live l
        UNION ALL
         SELECT 'running'::text,
            l.seq,
            l.id,
            l.queue,
            l.due_at,
            NULL::bigint,
            l.attempt,
            l.failures,
            l.crashes,
            l.expires_at,
            r.holder,
            r.claimed_at,
            NULL::bigint,
            r.claimed_at,
            NULL::text,
            NULL::text,
            false
           FROM (redrive.running r
             JOIN redrive.live l ON (((l.seq = r.seq) AND (l.attempt = r.attempt))))
        UNION ALL
         SELECT 'dead'::text,
            d.seq,
            d.id,
            d.queue,
            COALESCE(d.started_at, d.finished_at) AS "coalesce",
            NULL::bigint,
            d.attempt,
            d.failures,
            d.crashes,
            NULL::bigint,
            NULL::uuid,
            NULL::bigint,
            d.finished_at,
            d.finished_at,
            d.why,
            d.fingerprint,
            false
           FROM redrive.dead d
        UNION ALL
         SELECT 'succeeded'::text,
            d.seq,
            d.id,
            d.queue,
            COALESCE(d.started_at, d.finished_at) AS "coalesce",
            NULL::bigint,
            d.attempt,
            d.failures,
            d.crashes,
            NULL::bigint,
            NULL::uuid,
            NULL::bigint,
            d.finished_at,
            d.finished_at,
            NULL::text,
            NULL::text,
            d.cancelled
           FROM redrive.done d
        UNION ALL
         SELECT 'cancelled'::text,
            d.seq,
            d.id,
            d.queue,
            COALESCE(d.started_at, d.finished_at) AS "coalesce",
            NULL::bigint,
            d.attempt,
            d.failures,
            d.crashes,
            NULL::bigint,
            NULL::uuid,
            NULL::bigint,
            d.finished_at,
            d.finished_at,
            NULL::text,
            NULL::text,
            d.cancelled
           FROM redrive.done d) s
  WHERE (((s.state <> 'waiting'::text) OR (NOT ((s.seq, s.attempt) IN ( SELECT r.seq,
            r.attempt
           FROM redrive.running r)))) AND ((s.state <> 'succeeded'::text) OR (NOT s.cancelled)) AND ((s.state <> 'cancelled'::text) OR s.cancelled));

CREATE VIEW redrive.overview AS
 SELECT s.state,
    j.id,
    s.id AS stands,
    s.seq AS place,
    j.kind,
    q.name AS queue,
    j.priority,
    j.payload,
    j.labels,
    j.parent,
    j.unique_key,
    j.ordering_key,
    j.external,
    s.attempt,
    s.failures,
    s.crashes,
    s.reason,
    s.fingerprint,
    h.name AS holder,
        CASE
            WHEN j.external THEN 0
            ELSE 1
        END AS first,
    LEAST(COALESCE(p.max_retries, (p.max_attempts -
        CASE
            WHEN j.external THEN 0
            ELSE 1
        END)), (p.listed)::bigint) AS retries_max,
    ( SELECT redrive.json_text(a.failure, 'message'::text) AS json_text
           FROM redrive.attempts a
          WHERE ((a.seq = s.seq) AND (a.failure IS NOT NULL))
          ORDER BY a.attempt DESC
         LIMIT 1) AS last_error,
    p.kind AS backoff,
    p.base_seconds,
    p.delay_seconds,
    p.cap_seconds,
    p.factor,
    p.delays,
    redrive.instant(s.at) AS at,
    redrive.instant(s.next_at) AS next_at,
    redrive.instant(s.claimed_at) AS claimed_at,
    redrive.instant(s.finished_at) AS finished_at,
    redrive.instant(COALESCE(s.expires_at, j.deadline)) AS expires_at,
    redrive.instant(j.created_at) AS created_at,
    redrive.instant(s.changed_at) AS changed_at
   FROM ((((redrive.standing s
     LEFT JOIN redrive.jobs j ON (((j.id = s.id) AND (j.seq = s.seq))))
     LEFT JOIN redrive.queues q ON ((q.id = s.queue)))
     LEFT JOIN redrive.policy_terms p ON ((p.id = j.policy)))
     LEFT JOIN redrive.holders h ON ((h.id = s.holder)));

CREATE VIEW redrive.dead_letters AS
 SELECT o.id,
    o.kind,
    'failed'::text AS status,
    o.failures AS retry_count,
    NULL::timestamp with time zone AS next_retry_at,
    o.last_error,
    o.reason,
    o.fingerprint,
    o.attempt AS attempts,
    o.payload,
    o.created_at,
    o.finished_at AS failed_at,
    o.changed_at AS updated_at,
    o.queue,
    o.place
   FROM redrive.overview o
  WHERE (o.state = 'dead'::text);

CREATE TABLE redrive.done_other (
    seq bigint NOT NULL,
    id uuid NOT NULL,
    started_at bigint,
    finished_at bigint NOT NULL,
    queue integer NOT NULL,
    attempt integer DEFAULT 1 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    snoozes integer DEFAULT 0 NOT NULL,
    holds integer DEFAULT 0 NOT NULL,
    interruptions integer DEFAULT 0 NOT NULL,
    generation integer DEFAULT 0 NOT NULL,
    cancelled boolean DEFAULT false NOT NULL,
    output text
);

CREATE TABLE redrive.edges (
    before bigint NOT NULL,
    after bigint NOT NULL,
    execution bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE redrive.edits (
    job uuid NOT NULL,
    n bigint NOT NULL,
    before text NOT NULL
);

ALTER TABLE redrive.edits ALTER COLUMN n ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME redrive.edits_n_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW redrive.failed_jobs AS
 SELECT o.id,
    o.kind,
    o.failures AS retry_count,
    o.next_at AS next_retry_at,
    o.last_error,
        CASE o.state
            WHEN 'running'::text THEN 'processing'::text
            ELSE 'failed'::text
        END AS status,
    o.reason,
    o.payload,
    o.created_at,
    o.changed_at AS updated_at,
    o.queue,
    o.place
   FROM redrive.overview o
  WHERE ((o.state = ANY (ARRAY['waiting'::text, 'running'::text, 'dead'::text])) AND ((o.state = 'dead'::text) OR (o.failures > 0) OR (o.crashes > 0) OR (EXISTS ( SELECT 1
           FROM redrive.jobs j
          WHERE ((j.id = o.stands) AND j.external)))));

CREATE UNLOGGED TABLE redrive.freed (
    queue integer NOT NULL,
    priority smallint NOT NULL,
    by xid8 DEFAULT pg_current_xact_id() NOT NULL,
    due_at bigint NOT NULL
);

CREATE SEQUENCE redrive.gate_versions
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE redrive.gates (
    name text NOT NULL,
    version bigint NOT NULL,
    active boolean NOT NULL,
    next_us bigint DEFAULT 0 NOT NULL,
    retry_us bigint DEFAULT 0 NOT NULL,
    sent bigint DEFAULT 0 NOT NULL,
    state text NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE redrive.jobs_other (
    id uuid NOT NULL,
    seq bigint NOT NULL,
    queue integer NOT NULL,
    policy integer NOT NULL,
    created_at bigint NOT NULL,
    run_at bigint NOT NULL,
    checksum bigint,
    priority smallint NOT NULL,
    external boolean DEFAULT false NOT NULL,
    deadline bigint,
    start_by bigint,
    timeout_ms bigint,
    revived_at bigint,
    parent uuid,
    kind text NOT NULL,
    unique_key text,
    ordering_key text,
    destination text,
    labels text,
    payload text NOT NULL,
    author text
);

CREATE TABLE redrive.keys (
    key text NOT NULL,
    seq bigint NOT NULL,
    id uuid NOT NULL
);

CREATE TABLE redrive.meta (
    name text NOT NULL,
    value text NOT NULL
);

CREATE TABLE redrive.minutes (
    minute bigint NOT NULL,
    enqueued bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    dead bigint NOT NULL
);

CREATE UNLOGGED TABLE redrive.news (
    n bigint NOT NULL,
    body text NOT NULL
);

CREATE SEQUENCE redrive.news_places
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE redrive.notices (
    n bigint NOT NULL,
    at bigint NOT NULL,
    job uuid,
    key text NOT NULL,
    rule text NOT NULL,
    what text NOT NULL,
    message text NOT NULL
);

ALTER TABLE redrive.notices ALTER COLUMN n ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME redrive.notices_n_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE SEQUENCE redrive.places
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER TABLE redrive.policies ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME redrive.policies_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE redrive.presets (
    name text NOT NULL,
    body text NOT NULL
);

CREATE VIEW redrive.queued_operations AS
 SELECT o.id,
    o.kind AS operation_type,
        CASE o.state
            WHEN 'waiting'::text THEN 'pending'::text
            WHEN 'running'::text THEN 'processing'::text
            WHEN 'succeeded'::text THEN 'completed'::text
            WHEN 'dead'::text THEN 'failed'::text
            ELSE 'cancelled'::text
        END AS status,
    o.failures AS retry_count,
    redrive.as_integer((o.retries_max + o.first)) AS max_retries,
    o.last_error,
    o.created_at,
        CASE
            WHEN (o.state = 'succeeded'::text) THEN o.finished_at
            ELSE NULL::timestamp with time zone
        END AS processed_at,
    o.payload,
    o.queue,
    o.ordering_key,
    o.place
   FROM redrive.overview o;

ALTER TABLE redrive.queues ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME redrive.queues_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE redrive.records (
    shelf text NOT NULL,
    name text NOT NULL,
    value text NOT NULL
);

CREATE VIEW redrive.retry_queue AS
 SELECT o.id,
    COALESCE(o.unique_key, (o.id)::text) AS task_id,
    o.kind AS task_type,
    o.payload,
    redrive.as_integer((((o.failures - o.first) +
        CASE
            WHEN (o.state = ANY (ARRAY['running'::text, 'succeeded'::text])) THEN 1
            ELSE 0
        END))::bigint) AS attempt_count,
    redrive.as_integer(o.retries_max) AS max_attempts,
    o.last_error,
    o.next_at AS next_attempt_at,
    o.created_at,
    o.changed_at AS updated_at,
        CASE o.state
            WHEN 'waiting'::text THEN 'scheduled'::text
            WHEN 'running'::text THEN 'retrying'::text
            WHEN 'succeeded'::text THEN 'completed'::text
            WHEN 'dead'::text THEN 'failed'::text
            ELSE 'cancelled'::text
        END AS status,
    o.queue,
    o.place
   FROM redrive.overview o;

CREATE VIEW redrive.retry_schedules AS
 SELECT o.id,
        CASE
            WHEN (redrive.json_text(o.labels, 'node_id'::text) IS NULL) THEN o.kind
            ELSE 'node_execution'::text
        END AS retry_type,
    COALESCE(redrive.json_text(o.labels, 'target_id'::text), o.unique_key, (o.id)::text) AS target_id,
    COALESCE(redrive.json_text(o.labels, 'execution_id'::text), (o.parent)::text, (o.id)::text) AS execution_id,
    redrive.json_text(o.labels, 'node_id'::text) AS node_id,
        CASE o.backoff
            WHEN 'exponential'::text THEN 'exponential_backoff'::text
            WHEN 'fixed'::text THEN 'fixed_delay'::text
            WHEN 'schedule'::text THEN 'custom'::text
            ELSE o.backoff
        END AS retry_strategy,
    redrive.as_integer(o.retries_max) AS max_attempts,
    redrive.as_integer(((o.failures - o.first))::bigint) AS current_attempt,
    COALESCE(o.base_seconds, (0)::numeric) AS initial_delay_seconds,
    o.delay_seconds,
    o.factor AS multiplier,
    o.cap_seconds AS max_delay_seconds,
        CASE
            WHEN (o.delays IS NOT NULL) THEN json_build_object('attempts', ( SELECT json_agg(json_build_object('attempt', d.n, 'delay_seconds', redrive.span_seconds(d.span)) ORDER BY d.n) AS json_agg
               FROM json_array_elements_text(o.delays) WITH ORDINALITY d(span, n)))
            ELSE NULL::json
        END AS custom_schedule,
    o.at AS scheduled_at,
    ( SELECT redrive.instant(a.ended_at) AS instant
           FROM redrive.attempts a
          WHERE ((a.seq = o.place) AND (a.attempt > 0))
          ORDER BY a.attempt DESC
         LIMIT 1) AS last_retried_at,
    o.expires_at,
        CASE o.state
            WHEN 'waiting'::text THEN 'scheduled'::text
            WHEN 'running'::text THEN 'retrying'::text
            WHEN 'succeeded'::text THEN 'completed'::text
            WHEN 'dead'::text THEN 'failed'::text
            ELSE 'cancelled'::text
        END AS status,
    o.holder AS locked_by,
    o.claimed_at AS locked_at,
    (o.payload)::json AS retry_context,
    ( SELECT json_agg(json_build_object('attempt', a.attempt, 'timestamp', redrive.instant(a.ended_at), 'error', redrive.json_text(a.failure, 'message'::text)) ORDER BY a.attempt) AS json_agg
           FROM redrive.attempts a
          WHERE ((a.seq = o.place) AND (a.failure IS NOT NULL))) AS error_history,
    o.created_at,
    o.changed_at AS updated_at,
    (o.attempt + 1) AS version,
    o.queue,
    o.place
   FROM redrive.overview o;

CREATE TABLE redrive.tallies (
    queue integer NOT NULL,
    counts jsonb NOT NULL,
    minute bigint DEFAULT (redrive.now_ms() / 60000) NOT NULL
);

ALTER TABLE ONLY redrive.attempts ATTACH PARTITION redrive.attempts_other DEFAULT;

ALTER TABLE ONLY redrive.done ATTACH PARTITION redrive.done_other DEFAULT;

ALTER TABLE ONLY redrive.jobs ATTACH PARTITION redrive.jobs_other DEFAULT;

ALTER TABLE ONLY redrive.activity
    ADD CONSTRAINT activity_pkey PRIMARY KEY (n);

ALTER TABLE ONLY redrive.audit
    ADD CONSTRAINT audit_id_key UNIQUE (id);

ALTER TABLE ONLY redrive.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (n);

ALTER TABLE ONLY redrive.calls
    ADD CONSTRAINT calls_pkey PRIMARY KEY (key);

ALTER TABLE ONLY redrive.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (id);

ALTER TABLE ONLY redrive.cursors
    ADD CONSTRAINT cursors_pkey PRIMARY KEY (queue, priority, kinds, n);

ALTER TABLE ONLY redrive.dead
    ADD CONSTRAINT dead_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY redrive.edges
    ADD CONSTRAINT edges_pkey PRIMARY KEY (before, after);

ALTER TABLE ONLY redrive.edits
    ADD CONSTRAINT edits_pkey PRIMARY KEY (job, n);

ALTER TABLE ONLY redrive.gates
    ADD CONSTRAINT gates_pkey PRIMARY KEY (name);

ALTER TABLE ONLY redrive.holders
    ADD CONSTRAINT holders_pkey PRIMARY KEY (id);

ALTER TABLE ONLY redrive.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY redrive.jobs_other
    ADD CONSTRAINT jobs_other_pkey PRIMARY KEY (id);

ALTER TABLE ONLY redrive.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (key);

ALTER TABLE ONLY redrive.live
    ADD CONSTRAINT live_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY redrive.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (name);

ALTER TABLE ONLY redrive.minutes
    ADD CONSTRAINT minutes_pkey PRIMARY KEY (minute);

ALTER TABLE ONLY redrive.news
    ADD CONSTRAINT news_pkey PRIMARY KEY (n);

ALTER TABLE ONLY redrive.notices
    ADD CONSTRAINT notices_key_key UNIQUE (key);

ALTER TABLE ONLY redrive.notices
    ADD CONSTRAINT notices_pkey PRIMARY KEY (n);

ALTER TABLE ONLY redrive.policies
    ADD CONSTRAINT policies_pkey PRIMARY KEY (id);

ALTER TABLE ONLY redrive.presets
    ADD CONSTRAINT presets_pkey PRIMARY KEY (name);

ALTER TABLE ONLY redrive.queues
    ADD CONSTRAINT queues_name_key UNIQUE (name);

ALTER TABLE ONLY redrive.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (id);

ALTER TABLE ONLY redrive.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (shelf, name);

CREATE INDEX attempts_seq ON ONLY redrive.attempts USING btree (seq, attempt);

CREATE INDEX attempts_other_seq_attempt_idx ON redrive.attempts_other USING btree (seq, attempt);

CREATE INDEX audit_job ON redrive.audit USING btree (job, n) WHERE (job IS NOT NULL);

CREATE INDEX bands_queue ON redrive.bands USING btree (queue, priority);

CREATE INDEX calls_at ON redrive.calls USING btree (at);

CREATE INDEX claims_highest ON redrive.claims USING btree (highest);

CREATE INDEX claims_holder ON redrive.claims USING btree (holder);

CREATE INDEX dead_at ON redrive.dead USING btree (to_timestamp(((finished_at)::double precision / (1000)::double precision)));

CREATE INDEX dead_fingerprint ON redrive.dead USING btree (fingerprint, seq) WHERE (fingerprint IS NOT NULL);

CREATE INDEX dead_queue ON redrive.dead USING btree (queue);

CREATE INDEX done_seq ON ONLY redrive.done USING btree (seq);

CREATE INDEX done_other_seq_idx ON redrive.done_other USING btree (seq);

CREATE INDEX edges_after ON redrive.edges USING btree (after);

CREATE INDEX freed_by ON redrive.freed USING btree (queue, priority, by);

CREATE INDEX jobs_external ON ONLY redrive.jobs USING btree (id) WHERE external;

CREATE INDEX jobs_other_id_idx ON redrive.jobs_other USING btree (id) WHERE external;

CREATE INDEX jobs_parent ON ONLY redrive.jobs USING btree (parent) WHERE (parent IS NOT NULL);

CREATE INDEX jobs_other_parent_idx ON redrive.jobs_other USING btree (parent) WHERE (parent IS NOT NULL);

CREATE INDEX live_due ON redrive.live USING btree (queue, priority, due_at, seq) WHERE ((ordering_key IS NULL) AND (line IS NULL));

CREATE INDEX live_expires ON redrive.live USING btree (queue, expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX live_line ON redrive.live USING btree (destination, queue, line, priority DESC, due_at, seq) WHERE (line IS NOT NULL);

CREATE INDEX live_order ON redrive.live USING btree (queue, ordering_key, seq) WHERE (ordering_key IS NOT NULL);

CREATE INDEX live_retries ON redrive.live USING btree (due_at, seq) WHERE ((attempt > 0) OR (reason = ANY (ARRAY['backoff'::text, 'retry_after'::text, 'by_hand'::text])));

CREATE INDEX live_turn ON redrive.live USING btree (queue, priority, due_at, seq) WHERE ((ordering_key IS NOT NULL) AND (NOT held) AND (line IS NULL));

CREATE INDEX policies_body ON redrive.policies USING btree (hashtextextended(body, (0)::bigint), hashtextextended(body, (1)::bigint));

ALTER INDEX redrive.attempts_seq ATTACH PARTITION redrive.attempts_other_seq_attempt_idx;

ALTER INDEX redrive.done_seq ATTACH PARTITION redrive.done_other_seq_idx;

ALTER INDEX redrive.jobs_external ATTACH PARTITION redrive.jobs_other_id_idx;

ALTER INDEX redrive.jobs_parent ATTACH PARTITION redrive.jobs_other_parent_idx;

ALTER INDEX redrive.jobs_pkey ATTACH PARTITION redrive.jobs_other_pkey;
