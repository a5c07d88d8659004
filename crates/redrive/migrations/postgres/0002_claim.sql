-- Jobs are handed out. Each function is one round trip and one transaction, so no lock ever waits for a client; plans
-- are pinned to the indexes, because a plan made for an empty table must not be used on a full one.

-- What tells the locks of lanes from all others.
CREATE FUNCTION redrive.lane_class() RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT 1380209238
$$;

-- The lane of a queue: one claimer, and one command, at a time. Held until the transaction's end. Whoever locks a lane
-- does it before anything else, and several in the order of their numbers.
CREATE FUNCTION redrive.lock_lanes(p_queues integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_queue integer;
BEGIN
    FOR v_queue IN SELECT DISTINCT q FROM unnest(p_queues) AS q ORDER BY q LOOP
        PERFORM pg_advisory_xact_lock(redrive.lane_class(), v_queue);
    END LOOP;
END $$;

-- Whether calls to a destination have to be counted: because of how it stands, or because it is limited.
CREATE FUNCTION redrive.is_gated(p_name text, p_limited text[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM redrive.gates AS g WHERE g.name = p_name AND g.active) OR p_name LIKE ANY (p_limited);
END $$;

CREATE FUNCTION redrive.now_ms() RETURNS bigint LANGUAGE sql AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- What claims list. A job runs if it is listed at its current attempt; what else is listed has been settled.
CREATE VIEW redrive.running AS
SELECT listed.seq, listed.attempt, claims.id AS claim, claims.holder, claims.claimed_at, claims.lowest, claims.highest
FROM redrive.claims CROSS JOIN LATERAL unnest(claims.seqs, claims.attempts) AS listed (seq, attempt);

-- The next jobs of a band (a priority of a queue) in the order in which they are due, without those that run. Jobs with
-- an ordering key have a place of their own to go on from: they can be let go long after they were due. Planned with the
-- settings of redrive.claim, which alone asks for them.
CREATE FUNCTION redrive.next_in_band(
    p_queue integer, p_band smallint, p_due bigint, p_seq bigint, p_turn_due bigint, p_turn_seq bigint,
    p_until bigint, p_now bigint, p_limit integer, p_special boolean, p_kinds text[],
    p_taken bigint[], p_taken_attempts integer[], p_limited text[],
    OUT seqs bigint[], OUT attempts integer[], OUT dues bigint[], OUT ids uuid[], OUT suspects boolean[],
    OUT keys text[], OUT gates text[], OUT retries boolean[], OUT special boolean, OUT fresh boolean, OUT seen bigint,
    OUT last bigint[], OUT running integer
) LANGUAGE plpgsql AS $$
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

-- Whether its ordering key lets a job go. If not, it is held until an ending lets it go.
CREATE FUNCTION redrive.take_turn(
    p_queue integer, p_key text, p_seq bigint, p_let_pass boolean, p_running text[], p_now bigint,
    OUT goes boolean, OUT freed boolean
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
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

-- Hands out due jobs under two claims: one for the batch, one for a job that crashed before and is claimed alone. Writes
-- one row for each and none of the jobs. What the jobs are is read afterwards with redrive.claimed, when no lane is
-- locked any more.
CREATE FUNCTION redrive.claim(
    p_holder uuid, p_batch uuid, p_alone uuid, p_queues text[], p_limits integer[], p_let_pass boolean[],
    p_suspect boolean, p_now bigint, p_kinds text[], p_limited text[], p_gates jsonb,
    OUT answer text, OUT next_due bigint, OUT alone_at integer, OUT gates text, OUT moved text[],
    -- What the batch lists, if that is short, and the one alone.
    OUT seqs bigint[], OUT attempts integer[], OUT dues bigint[], OUT alone bigint, OUT alone_attempt integer
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
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

-- What gates grant, as it was decided elsewhere from their states, and counted here from what has gone since. A gate
-- that is another by now grants nothing, nor does one that somebody has locked: he may take his time, and we have the
-- lane. Locked until the transaction's end.
CREATE FUNCTION redrive.granted(
    p_gates jsonb, OUT names text[], OUT calls integer[], OUT retries integer[], OUT is_full boolean[],
    OUT lines integer
) LANGUAGE plpgsql AS $$
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

-- How many more may go before the mark is too far ahead.
CREATE FUNCTION redrive.bucket_room(p_mark bigint, p_floor bigint, p_until bigint, p_cost bigint) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_cost = 0 THEN 2147483647
                WHEN greatest(p_mark, p_floor) > p_until THEN 0
                ELSE least((p_until - greatest(p_mark, p_floor)) / p_cost + 1, 2147483647)::integer END
$$;

-- Calls to a destination that are under way.
CREATE FUNCTION redrive.calls_to(p_name text) RETURNS integer LANGUAGE sql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    SELECT count(*)::integer
    FROM redrive.claims AS c CROSS JOIN LATERAL unnest(c.seqs, c.attempts) AS listed (seq, attempt)
    JOIN redrive.live AS l ON l.seq = listed.seq AND l.attempt = listed.attempt
    WHERE l.destination = p_name
$$;

-- Takes the first of a destination's line: first attempts, then retries.
CREATE FUNCTION redrive.next_in_line(
    p_queue integer, p_to text, p_limit integer, p_retries integer, p_kinds text[], p_suspect boolean,
    p_let_pass boolean, p_now bigint, p_running text[],
    OUT seqs bigint[], OUT attempts integer[], OUT alone bigint, OUT alone_attempt integer, OUT ordered boolean,
    OUT firsts integer, OUT again integer, OUT more boolean, OUT running text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
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

-- Writes what has gone through gates, and answers how they stand now.
CREATE FUNCTION redrive.let_go(
    p_gates jsonb, p_names text[], p_firsts integer[], p_again integer[], p_left integer[],
    p_left_retries integer[], p_full boolean[], p_queues integer[]
) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
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

-- When the first job of a band behind a place that does not run is due.
CREATE FUNCTION redrive.next_due(
    p_queue integer, p_band smallint, p_at bigint[], p_turn bigint[], p_suspect boolean, p_kinds text[],
    p_limited text[]
) RETURNS bigint LANGUAGE plpgsql AS $$
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

-- When the time of the first job of a queue that does not run is over.
CREATE FUNCTION redrive.next_expiry(p_queue integer, p_suspect boolean) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
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

-- The ordering keys of which a job runs.
CREATE FUNCTION redrive.keys_running(p_queue integer) RETURNS text[] LANGUAGE sql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    SELECT coalesce(array_agg(DISTINCT l.ordering_key), '{}')
    FROM redrive.claims AS c CROSS JOIN LATERAL unnest(c.seqs, c.attempts) AS listed (seq, attempt)
    JOIN redrive.live AS l ON l.seq = listed.seq AND l.attempt = listed.attempt
    WHERE c.ordered AND l.queue = p_queue AND l.ordering_key IS NOT NULL
$$;

-- Notes where claims of a band go on. The rows before are removed now and then.
CREATE FUNCTION redrive.move_cursor(
    p_queue integer, p_band smallint, p_kinds text, p_last bigint, p_to bigint[], p_seen pg_snapshot, p_swept_at bigint,
    p_sweep_ms bigint
) RETURNS void LANGUAGE plpgsql AS $$
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

CREATE FUNCTION redrive.later(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN a[1] IS NULL OR b > a THEN b ELSE a END
$$;

CREATE FUNCTION redrive.earlier(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN a[1] IS NULL OR b > a THEN a ELSE b END
$$;

-- What most jobs do not have, as one object.
CREATE FUNCTION redrive.rest(j redrive.jobs) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'key', j.unique_key, 'ordering_key', j.ordering_key, 'destination', j.destination, 'parent', j.parent,
        'labels', j.labels::json, 'deadline', j.deadline, 'start_by', j.start_by, 'timeout', j.timeout_ms,
        'revived_at', j.revived_at, 'external', j.external)::text
$$;

-- What a job is, without where it stands. What most jobs do not have is one column.
CREATE VIEW redrive.contents AS
SELECT j.id, j.seq, j.run_at, j.queue, j.priority, j.policy, j.created_at, j.checksum, j.kind, j.payload,
       CASE WHEN j.unique_key IS NULL AND j.ordering_key IS NULL AND j.labels IS NULL AND j.destination IS NULL
                 AND j.deadline IS NULL AND j.start_by IS NULL AND j.timeout_ms IS NULL AND j.revived_at IS NULL
                 AND j.parent IS NULL AND NOT j.external
            THEN NULL
            -- Nodes of workflows have this much and seldom more: to put two texts together is quicker.
            WHEN j.parent IS NOT NULL AND j.unique_key IS NULL AND j.ordering_key IS NULL AND j.destination IS NULL
                 AND j.deadline IS NULL AND j.start_by IS NULL AND j.timeout_ms IS NULL AND j.revived_at IS NULL
                 AND NOT j.external
            THEN '{"parent":"' || j.parent || '","labels":' || coalesce(j.labels, 'null') || '}'
            ELSE redrive.rest(j) END AS rest
FROM redrive.jobs AS j;

-- The millisecond in which an id was made.
CREATE FUNCTION redrive.made_at(p_id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint
$$;

-- What claimed jobs are, in no order: which of them a claim lists, and where, is in its row. One that was taken away
-- meanwhile is left out. Where a claim says that its jobs are fresh, only what they are is read, unless they come from
-- many days: each day is looked through for all of them.
CREATE FUNCTION redrive.claimed(p_claims uuid[]) RETURNS TABLE (
    seq bigint, due_at bigint, attempt integer, id uuid, queue integer, priority smallint, policy integer,
    created_at bigint, checksum bigint, kind text, payload text, rest text, counters integer[], reason text,
    last_delay_ms bigint, in_line_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
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
