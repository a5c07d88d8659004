-- What was learned of destinations is written. Decided in Rust from the gate of the version that is named with it; where
-- that is another by now, nothing is written, and the answer is how the gate stands. Gates are named in order, so that
-- two who learn of the same ones do not wait for each other.
CREATE FUNCTION redrive.learn(
    p_name text, p_version bigint, p_state text, p_active boolean, p_sent bigint, p_at bigint, p_job uuid, p_note text,
    OUT written boolean, OUT version bigint, OUT active boolean, OUT state text, OUT next_us bigint,
    OUT retry_us bigint, OUT sent bigint
) LANGUAGE plpgsql AS $$
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

-- Destinations in whose lines somebody stands, one look into the index for each.
CREATE FUNCTION redrive.lines() RETURNS SETOF text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
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
