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
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
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
-- Two that the same job waits for may end at once. How many are left is counted in its row, several in the order of their
-- places: whoever comes second waits for the first, and counts from what that one left.
--
-- A holder may have kept the places of those that ended well. As many of those that are let go begin in them at once,
-- under a claim of its own, and neither become due nor are claimed as others are. Answers how many.
CREATE FUNCTION redrive.let_members_go(
    p_well bigint[], p_well_at bigint[], p_badly bigint[], p_badly_at bigint[],
    -- For whom, under which claim, of which kinds; and how many of which queue and priority.
    p_holder uuid DEFAULT NULL, p_claim uuid DEFAULT NULL, p_kinds text[] DEFAULT NULL, p_queues integer[] DEFAULT NULL,
    p_bands smallint[] DEFAULT NULL, p_places integer[] DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
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

-- Claims those that wait for nothing but what has just ended, as far as there are places; answers which. Their rows are
-- not written, only locked: nobody else may claim what is not due, and a command looks again who runs when it has the
-- lock. What needs more than a place is left to an ordinary claim: a gate's word, a look at the time, another's suspicion.
CREATE FUNCTION redrive.begin_members(
    p_after bigint[], p_at bigint[], p_gone integer[],
    p_holder uuid, p_claim uuid, p_kinds text[], p_queues integer[], p_bands smallint[], p_places integer[]
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
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

-- How those of these jobs ended that are final, of those that did not end badly only who ended in this time. The places
-- first, all at once: to join the days' tables with one job after the other takes longer.
CREATE FUNCTION redrive.ended(p_ids uuid[], p_from bigint, p_until bigint)
RETURNS TABLE (id uuid, state text, output text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
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

-- Whether the job it belongs to has not come to its end, and may still ask for it.
CREATE FUNCTION redrive.is_needed(p_id uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM redrive.jobs AS j JOIN redrive.jobs AS p ON p.id = j.parent
        WHERE j.id = p_id
          AND (EXISTS (SELECT 1 FROM redrive.live AS l WHERE l.seq = p.seq)
               OR EXISTS (SELECT 1 FROM redrive.dead AS d WHERE d.seq = p.seq)))
$$;
