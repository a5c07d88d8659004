-- Attempts end, and leases with them. Every write names its fence: the claim must be there, locked against its end, and
-- the attempt must be the one that was claimed. If one lease of a call was lost, nothing of the call happens (RD409), and
-- the caller leaves that one out.
CREATE FUNCTION redrive.settle(
    -- Lanes of queues whose order hangs on these endings; the claims, and how many of each are settled.
    p_lanes integer[], p_claims uuid[], p_counts integer[],
    -- Succeeded with nothing special.
    p_seqs bigint[], p_fences integer[], p_started bigint[], p_ended bigint[], p_ids uuid[], p_queues integer[],
    p_failures integer[],
    -- Those that wait again.
    p_w_seq bigint[], p_w_fence integer[], p_w_at bigint[], p_w_failures integer[], p_w_crashes integer[],
    p_w_snoozes integer[], p_w_holds integer[], p_w_interruptions integer[], p_w_reason text[], p_w_delay bigint[],
    p_w_expires bigint[],
    -- Those that are final. A job that needs a person has a reason why.
    p_f_seq bigint[], p_f_fence integer[], p_f_id uuid[], p_f_queue integer[], p_f_started bigint[], p_f_at bigint[],
    p_f_failures integer[], p_f_crashes integer[], p_f_snoozes integer[], p_f_holds integer[],
    p_f_interruptions integer[], p_f_generation integer[], p_f_cancelled boolean[], p_f_output text[], p_f_why text[],
    p_f_fingerprint text[], p_f_key text[],
    -- The attempts that did not succeed, and what there is to say of them: mostly of many the same.
    p_a_seq bigint[], p_a_attempt integer[], p_a_started bigint[], p_a_ended bigint[], p_a_next bigint[],
    p_a_said integer[],
    p_said_ending text[], p_said_failure text[], p_said_fingerprint text[], p_said_rule text[],
    -- Ordering keys of which one ended.
    p_turn_queue integer[], p_turn_key text[],
    -- Histories that have grown too long.
    p_trim_seq bigint[], p_trim_after integer, p_trim_until integer[],
    -- Leases that were lost, and are now missed by their holder.
    p_missed_claim uuid[], p_missed_seq bigint[],
    -- What there is to tell.
    p_tally_queue integer[], p_tally jsonb[],
    p_note_at bigint[], p_note_job uuid[], p_note_what text[], p_note_kind text[], p_note_queue text[],
    p_note_message text[],
    -- The end of a holder whose lease was over then, with everything it is known to hold.
    p_holder uuid, p_now bigint, p_known bigint[], p_known_attempts integer[],
    -- Those that are due again at once, and are claimed again with their settlement: for whom, under which claim.
    p_again_holder uuid, p_again uuid, p_again_at bigint, p_again_queues integer[],
    p_again_seqs bigint[], p_again_attempts integer[],
    -- They stand together if the same is to be written of them: up to which one.
    p_g_upto integer[], p_g_fence integer[], p_g_failures integer[], p_g_delay bigint[], p_g_expires bigint[]
) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
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

-- The places of those that end at this attempt.
CREATE FUNCTION redrive.places_at(p_seqs bigint[], p_fences integer[], p_fence integer) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_fence = ALL (p_fences) THEN
        RETURN p_seqs;
    END IF;
    RETURN ARRAY(SELECT s.seq FROM unnest(p_seqs, p_fences) AS s (seq, fence) WHERE s.fence = p_fence);
END $$;

-- After an ending: the first of those that waited for their turn may try again. Needs the lane.
CREATE FUNCTION redrive.let_next_go(p_queue integer, p_key text) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE redrive.live SET held = false WHERE seq = (
        SELECT l.seq FROM redrive.live AS l
        WHERE l.queue = p_queue AND l.ordering_key = p_key AND l.held ORDER BY l.seq LIMIT 1);
END $$;

-- Counters and notes. Both are only ever added to, so nobody waits for them.
CREATE FUNCTION redrive.tell(
    p_tally_queue integer[], p_tally jsonb[], p_note_at bigint[], p_note_job uuid[], p_note_what text[],
    p_note_kind text[], p_note_queue text[], p_note_message text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO redrive.tallies (queue, counts) SELECT * FROM unnest(p_tally_queue, p_tally);
    IF cardinality(p_note_at) > 0 THEN
        INSERT INTO redrive.activity (at, job, what, kind, queue, message)
        VALUES (p_note_at, p_note_job, p_note_what, p_note_kind, p_note_queue, p_note_message);
    END IF;
END $$;

-- Of these leases, the ones that are lost, by number.
CREATE FUNCTION redrive.lost(p_claims uuid[], p_seqs bigint[], p_attempts integer[]) RETURNS integer[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT coalesce(array_agg(s.n::integer), '{}')
        FROM unnest(p_claims, p_seqs, p_attempts) WITH ORDINALITY AS s (claim, seq, attempt, n)
        LEFT JOIN redrive.claims AS c ON c.id = s.claim
        LEFT JOIN redrive.live AS l ON l.seq = s.seq AND l.attempt = s.attempt
        WHERE c.id IS NULL OR l.seq IS NULL);
END $$;
