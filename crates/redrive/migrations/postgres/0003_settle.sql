-- Attempts end, and leases with them. Every write names its fence: the claim must be there, locked against its end, and
-- the attempt must be the one that was claimed. If one lease of a call was lost, nothing of the call happens (RD409), and
-- the caller leaves that one out.
CREATE FUNCTION redrive.settle(
    -- Lanes of queues whose order hangs on these endings; the claims, and how many of each are settled.
    p_lanes integer[], p_claims uuid[], p_counts integer[],
    -- Succeeded at the first attempt, with nothing special.
    p_seqs bigint[], p_started bigint[], p_ended bigint[],
    -- All others.
    p_o_seq bigint[], p_o_fence integer[], p_o_state text[], p_o_at bigint[], p_o_started bigint[], p_o_ended bigint[],
    p_o_failures integer[], p_o_crashes integer[], p_o_snoozes integer[], p_o_holds integer[],
    p_o_interruptions integer[], p_o_generation integer[], p_o_ending text[], p_o_reason text[], p_o_delay bigint[],
    p_o_expires bigint[], p_o_why text[], p_o_failure text[], p_o_fingerprint text[], p_o_rule text[],
    p_o_output text[], p_o_key text[],
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
    p_holder uuid, p_now bigint, p_known bigint[]
) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_count bigint;
BEGIN
    IF cardinality(p_lanes) > 0 THEN
        PERFORM redrive.lock_lanes(p_lanes);
    END IF;
    IF p_holder IS NOT NULL THEN
        PERFORM 1 FROM redrive.holders AS h WHERE h.id = p_holder AND h.until <= p_now FOR UPDATE;
        IF NOT FOUND OR EXISTS (
            SELECT 1
            FROM redrive.running AS r JOIN redrive.live AS l ON l.seq = r.seq AND l.attempt = r.attempt
            WHERE r.holder = p_holder AND r.seq <> ALL (p_known)
        ) THEN
            RAISE EXCEPTION 'the holder lives, or holds more than is known' USING ERRCODE = 'RD410';
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
        WITH ended AS (
            DELETE FROM redrive.live AS l USING unnest(p_seqs, p_started, p_ended) AS s (seq, started_at, ended_at)
            WHERE l.seq = s.seq AND l.attempt = 0
            RETURNING l.seq, l.id, l.queue, s.started_at, s.ended_at
        )
        INSERT INTO redrive.done (seq, id, queue, started_at, finished_at)
        SELECT e.seq, e.id, e.queue, e.started_at, e.ended_at FROM ended AS e;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count <> cardinality(p_seqs) THEN
            RAISE EXCEPTION 'a lease was lost' USING ERRCODE = 'RD409';
        END IF;
    END IF;
    IF cardinality(p_o_seq) > 0 THEN
        WITH settled AS MATERIALIZED (
            SELECT * FROM unnest(
                p_o_seq, p_o_fence, p_o_state, p_o_at, p_o_started, p_o_ended, p_o_failures, p_o_crashes, p_o_snoozes,
                p_o_holds, p_o_interruptions, p_o_generation, p_o_ending, p_o_reason, p_o_delay, p_o_expires, p_o_why,
                p_o_failure, p_o_fingerprint, p_o_rule, p_o_output, p_o_key
            ) AS s (seq, fence, state, at, started_at, ended_at, failures, crashes, snoozes, holds, interruptions,
                    generation, ending, reason, delay, expires_at, why, failure, fingerprint, rule, output, key)
        ), waits AS (
            UPDATE redrive.live AS l
            SET due_at = s.at, attempt = s.fence + 1, failures = s.failures, crashes = s.crashes, snoozes = s.snoozes,
                holds = s.holds, interruptions = s.interruptions, reason = s.reason,
                last_delay_ms = coalesce(s.delay, l.last_delay_ms), expires_at = s.expires_at, held = false
            FROM settled AS s
            WHERE s.state = 'waiting' AND l.seq = s.seq AND l.attempt = s.fence
            RETURNING s.*
        ), ends AS (
            DELETE FROM redrive.live AS l USING settled AS s
            WHERE s.state <> 'waiting' AND l.seq = s.seq AND l.attempt = s.fence
            RETURNING s.*, l.id, l.queue
        ), done AS (
            INSERT INTO redrive.done (seq, id, queue, started_at, finished_at, attempt, failures, crashes, snoozes, holds,
                                      interruptions, generation, cancelled, output)
            SELECT e.seq, e.id, e.queue, e.started_at, e.at, e.fence + 1, e.failures, e.crashes, e.snoozes, e.holds,
                   e.interruptions, e.generation, e.state = 'cancelled', e.output
            FROM ends AS e WHERE e.state <> 'dead'
        ), dead AS (
            INSERT INTO redrive.dead (seq, id, queue, started_at, finished_at, attempt, failures, crashes, snoozes, holds,
                                      interruptions, generation, why, fingerprint)
            SELECT e.seq, e.id, e.queue, e.started_at, e.at, e.fence + 1, e.failures, e.crashes, e.snoozes, e.holds,
                   e.interruptions, e.generation, e.why, e.fingerprint
            FROM ends AS e WHERE e.state = 'dead'
        ), keys AS (
            DELETE FROM redrive.keys AS k USING ends AS e WHERE k.key = e.key AND k.seq = e.seq
        ), applied AS (
            SELECT w.seq, w.fence, w.started_at, w.ended_at, w.ending, w.failure, w.fingerprint, w.rule, w.at AS next_at
            FROM waits AS w
            UNION ALL
            SELECT e.seq, e.fence, e.started_at, e.ended_at, e.ending, e.failure, e.fingerprint, e.rule, NULL
            FROM ends AS e
        ), attempts AS (
            INSERT INTO redrive.attempts (seq, attempt, started_at, ended_at, ending, failure, fingerprint, rule, next_at)
            SELECT a.seq, a.fence + 1, a.started_at, a.ended_at, a.ending, a.failure, a.fingerprint, a.rule, a.next_at
            FROM applied AS a WHERE a.ending <> 'succeeded'
        )
        SELECT count(*) INTO v_count FROM applied;
        IF v_count <> cardinality(p_o_seq) THEN
            RAISE EXCEPTION 'a lease was lost' USING ERRCODE = 'RD409';
        END IF;
        IF cardinality(p_trim_seq) > 0 THEN
            DELETE FROM redrive.attempts AS a USING unnest(p_trim_seq, p_trim_until) AS t (seq, until)
            WHERE a.seq = t.seq AND a.attempt > p_trim_after AND a.attempt <= t.until;
        END IF;
        FOR i IN 1 .. cardinality(p_turn_queue) LOOP
            PERFORM redrive.let_next_go(p_turn_queue[i], p_turn_key[i]);
        END LOOP;
    END IF;
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

-- After an ending: the first of those that waited for their turn may try again. Needs the lane.
CREATE FUNCTION redrive.let_next_go(p_queue integer, p_key text) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
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
        SELECT * FROM unnest(p_note_at, p_note_job, p_note_what, p_note_kind, p_note_queue, p_note_message);
    END IF;
END $$;

-- Of these leases, the ones that are lost, by number.
CREATE FUNCTION redrive.lost(p_claims uuid[], p_seqs bigint[], p_attempts integer[]) RETURNS integer[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN (
        SELECT coalesce(array_agg(s.n::integer), '{}')
        FROM unnest(p_claims, p_seqs, p_attempts) WITH ORDINALITY AS s (claim, seq, attempt, n)
        LEFT JOIN redrive.claims AS c ON c.id = s.claim
        LEFT JOIN redrive.live AS l ON l.seq = s.seq AND l.attempt = s.attempt
        WHERE c.id IS NULL OR l.seq IS NULL);
END $$;
