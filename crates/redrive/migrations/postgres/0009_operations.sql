-- What is kept for the people who operate it.

-- What has happened in each minute, everywhere. Counters carry the minute in which they were written until they are added
-- up; what has been added up belongs to no minute any more.
ALTER TABLE redrive.tallies ADD COLUMN minute bigint NOT NULL DEFAULT 0;
ALTER TABLE redrive.tallies ALTER COLUMN minute SET DEFAULT redrive.now_ms() / 60000;
CREATE TABLE redrive.minutes (
    minute    bigint NOT NULL PRIMARY KEY,
    enqueued  bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed    bigint NOT NULL,
    dead      bigint NOT NULL
);

-- Every change that somebody asked for. Bounded.
CREATE TABLE redrive.audit (
    n      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     bigint NOT NULL,
    job    uuid,
    id     text NOT NULL UNIQUE,
    who    text NOT NULL,
    token  text,
    what   text NOT NULL,
    target text NOT NULL,
    result text NOT NULL,
    detail text NOT NULL
);
CREATE INDEX audit_job ON redrive.audit (job, n) WHERE job IS NOT NULL;

-- What somebody was to be told, each thing once. Bounded.
CREATE TABLE redrive.notices (
    n       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      bigint NOT NULL,
    job     uuid,
    key     text NOT NULL UNIQUE,
    rule    text NOT NULL,
    what    text NOT NULL,
    message text NOT NULL
);

-- What jobs were before they were corrected.
CREATE TABLE redrive.edits (
    job    uuid NOT NULL,
    n      bigint GENERATED ALWAYS AS IDENTITY,
    before text NOT NULL,
    PRIMARY KEY (job, n)
);

-- What servers tell each other of what happens, for those who watch. Nobody needs it after a crash, but for its places,
-- which are not given twice.
CREATE UNLOGGED TABLE redrive.news (
    n    bigint NOT NULL PRIMARY KEY,
    body text NOT NULL
);
CREATE SEQUENCE redrive.news_places;

-- Keeps a notice unless there is one with its key. One at a time, so that whoever reads on behind the last place misses
-- none that is written later under an earlier one.
CREATE FUNCTION redrive.notice(
    p_key text, p_at bigint, p_rule text, p_what text, p_job uuid, p_message text, p_kept bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
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

-- Tells all who watch. One at a time, as above.
CREATE FUNCTION redrive.tell_all(p_body text, p_kept bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_n bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(1380209240, 2);
    v_n := nextval('redrive.news_places');
    INSERT INTO redrive.news (n, body) VALUES (v_n, p_body);
    DELETE FROM redrive.news WHERE n <= v_n - p_kept;
    RETURN v_n;
END $$;

-- Corrects a job. Decided from the job as it was read: if it has moved since, nothing happens, and it is decided again.
CREATE FUNCTION redrive.edit(
    p_lanes integer[], p_seq bigint, p_id uuid, p_state text, p_attempt integer, p_policy integer, p_checksum bigint,
    p_priority smallint, p_labels text, p_destination text, p_payload text, p_before text, p_kept bigint, p_note jsonb,
    p_expires bigint
) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
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

-- Counters are added up, of each queue and of each minute, and the logs are cut to their length. One at a time; who comes
-- second has nothing to do.
CREATE FUNCTION redrive.tidy(p_notes bigint) RETURNS void LANGUAGE plpgsql AS $$
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

-- How many jobs of each queue run. By the index, whatever the planner believes of tables that were empty a moment ago.
CREATE FUNCTION redrive.running_by_queue() RETURNS TABLE (queue integer, jobs bigint) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN QUERY
    SELECT l.queue, count(*) FROM redrive.running AS r JOIN redrive.live AS l ON l.seq = r.seq AND l.attempt = r.attempt
    GROUP BY l.queue;
END $$;
