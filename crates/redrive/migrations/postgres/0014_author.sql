-- Who asked for a job, where that was said. Only people who look at it want to know, so it is not among what is claimed.
ALTER TABLE redrive.jobs ADD COLUMN author text;

-- Jobs with nothing special but perhaps where they go and who wants them.
DROP FUNCTION redrive.put(uuid[], integer[], integer[], bigint[], bigint[], bigint[], smallint[], text[], text[], integer[],
                          jsonb[], text[]);
CREATE FUNCTION redrive.put(
    p_id uuid[], p_queue integer[], p_policy integer[], p_created bigint[], p_run_at bigint[], p_checksum bigint[],
    p_priority smallint[], p_kind text[], p_payload text[], p_tally_queue integer[], p_tally jsonb[],
    p_destination text[] DEFAULT NULL, p_author text[] DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
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

-- New jobs with their histories, each in its place.
CREATE OR REPLACE FUNCTION redrive.write_jobs(p_seqs bigint[], p_jobs jsonb) RETURNS void LANGUAGE plpgsql AS $$
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

-- New content in the place of a job that waits, as before.
CREATE OR REPLACE FUNCTION redrive.replace(p_seq bigint, p_key text, p_new jsonb) RETURNS void LANGUAGE plpgsql AS $$
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
