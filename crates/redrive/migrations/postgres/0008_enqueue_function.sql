-- A job in a transaction of one's own, from any language:
--
--     SELECT * FROM redrive.enqueue('{"kind": "mail", "payload": {"to": "ada@example.org"}, "key": "welcome-7"}');
--
-- It is there if and only if that transaction commits, and an engine is woken when it does. For as long as the transaction
-- is open nobody else waits for it: no lane, no counter, no row that others change. Only whoever enqueues the same key
-- waits, because whether that key is taken is not known before.

-- The library's own, written there when it connects: the policies that have names, and under '' the one of a job that
-- names none.
CREATE TABLE redrive.presets (
    name text NOT NULL PRIMARY KEY,
    body text NOT NULL
);

-- No unique index any more: whoever is the first to use a policy must not make others wait who use the same one. The same
-- policy under two numbers is two rows and no harm.
DROP INDEX redrive.policies_body;
CREATE INDEX policies_body ON redrive.policies (hashtextextended(body, 0), hashtextextended(body, 1));

CREATE OR REPLACE FUNCTION redrive.policy_id(p_version integer, p_body text) RETURNS integer LANGUAGE plpgsql AS $$
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

-- A queue's name is unique, so whoever is the second to name a new one waits for the first. Hence the one that everybody
-- has is there from the beginning, and an engine makes its own known when it first claims, without waiting itself.
INSERT INTO redrive.queues (name) VALUES ('default') ON CONFLICT (name) DO NOTHING;

CREATE FUNCTION redrive.know_queue(p_name text) RETURNS void LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
BEGIN
    PERFORM redrive.queue_id(p_name);
EXCEPTION WHEN lock_not_available THEN
    -- Someone's open transaction is about to.
    RETURN;
END $$;

-- One job that is complete but for the numbers of its queue and policy, which stand there by name and by value. Answers
-- its id and what became of it: created, existing, or refused with nothing written because its key is taken or its queue
-- is full. A refusal is an answer and no error, so that the transaction can go on.
CREATE FUNCTION redrive.admit_in_transaction(p_job jsonb, OUT job uuid, OUT how text) LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
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

-- Enqueues a job. Its fields are those of the HTTP API.
CREATE FUNCTION redrive.enqueue(job jsonb, OUT id uuid, OUT deduplicated boolean, OUT state text) LANGUAGE plpgsql
-- Whoever may use the schema may enqueue, and needs no right to any table.
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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

-- Makes a complete job of what was asked for, as `machine::admit` does in Rust, or says everything that is wrong with it.
CREATE FUNCTION redrive.made_job(p_new jsonb, p_now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    c_known CONSTANT text[] := '{kind,payload,queue,policy,key,onConflict,priority,delay,runAt,deadline,startBy,timeout,orderingKey,destination,parent,labels}';
    c_longest CONSTANT bigint := 34560000000;
    v_new jsonb;  v_payload text;  v_wrong text[];  v_field record;  v_read record;  v_policy record;
    v_due bigint := p_now;  v_deadline bigint;  v_start_by bigint;  v_timeout bigint;  v_expires bigint;  v_parent uuid;
BEGIN
    IF jsonb_typeof(p_new) IS DISTINCT FROM 'object' THEN
        PERFORM redrive.refuse('a job', ARRAY[format('it is %s; write an object, {"kind": …}', coalesce(p_new::text, 'NULL'))]);
    END IF;
    -- A null is as good as nothing, but for the payload.
    v_new := coalesce((SELECT jsonb_object_agg(f.key, f.value) FROM jsonb_each(p_new) AS f
                       WHERE f.value <> 'null' AND f.key <> 'payload'), '{}');
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
            v_due := p_now + least(v_read.ms, c_longest);
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
END $$;

-- An id that begins with the millisecond in which it was made (UUIDv7).
CREATE FUNCTION redrive.new_id(p_now bigint) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT (lpad(to_hex(p_now), 12, '0') || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid
$$;

-- Says what is wrong, all of it at once.
CREATE FUNCTION redrive.refuse(p_what text, p_wrong text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% was not accepted: %', p_what, array_to_string(p_wrong, '; ')
        USING ERRCODE = 'RD400', HINT = 'nothing was stored; correct the job, and enqueue it again after a rollback';
END $$;

CREATE FUNCTION redrive.time_text(p_ms bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(to_timestamp(p_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- Fields that nobody will read: a misspelt limit must not be no limit.
CREATE FUNCTION redrive.unknown_fields(p_path text, p_object jsonb, p_known text[]) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(format('%s%s is not known here; write one of %s', p_path, f.key, array_to_string(p_known, ', '))), '{}')
    FROM jsonb_object_keys(p_object) AS f (key) WHERE f.key <> ALL (p_known)
$$;

-- What is wrong with a job's names and labels.
CREATE FUNCTION redrive.name_mistakes(p_new jsonb) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
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
        ELSIF v_bytes > 256 OR v_bytes = 0 AND v_name <> 'orderingKey' THEN
            v_wrong := v_wrong || format('its %s has %s bytes: write %s', v_name, v_bytes,
                                         CASE v_name WHEN 'orderingKey' THEN 'at most 256' ELSE '1 to 256' END);
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
        END IF;
    END IF;
    RETURN v_wrong;
END $$;

-- A time: 2026-11-15T21:18:51Z, with a fraction and another offset if need be.
CREATE FUNCTION redrive.read_time(p_value jsonb, OUT ms bigint, OUT mistake text) LANGUAGE plpgsql STABLE AS $$
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
END $$;

-- A duration as people write it: 90s, 500ms, 14d, 1h30m, 1.5s; a number is seconds.
CREATE FUNCTION redrive.read_span(p_value jsonb, OUT ms numeric, OUT mistake text) LANGUAGE plpgsql IMMUTABLE AS $$
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
END $$;

-- A policy: nothing, the name of a preset, or an object in our own form, with "preset" to change one. Answers it in the form
-- in which it is stored, and the times in it that a job takes over.
CREATE FUNCTION redrive.read_policy(
    p_value jsonb, OUT body text, OUT mistakes text[], OUT deadline bigint, OUT start_by bigint,
    OUT held_counts boolean
) LANGUAGE plpgsql STABLE AS $$
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

-- Everything that is wrong with a policy in our own form, as `policy/check.rs` says it.
CREATE FUNCTION redrive.policy_mistakes(p_policy jsonb) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
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

CREATE FUNCTION redrive.backoff_mistakes(p_backoff jsonb) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
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

CREATE FUNCTION redrive.jitter_mistakes(p_jitter jsonb) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
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

CREATE FUNCTION redrive.rule_mistakes(p_rules jsonb) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
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
END $$;

-- What is wrong with a duration that may be missing; p_zero says what to write instead of none at all.
CREATE FUNCTION redrive.span_mistakes(p_path text, p_value jsonb, p_zero text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
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

CREATE FUNCTION redrive.word_mistakes(p_path text, p_value jsonb, p_words text[]) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_value IS NULL OR jsonb_typeof(p_value) = 'string' AND p_value #>> '{}' = ANY (p_words) THEN '{}'::text[]
           ELSE ARRAY[format('%s: %s is not known; write one of "%s"', p_path, p_value, array_to_string(p_words, '", "'))] END
$$;

CREATE FUNCTION redrive.truth_mistakes(p_path text, p_value jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_value IS NULL OR jsonb_typeof(p_value) = 'boolean' THEN '{}'::text[]
           ELSE ARRAY[format('%s: %s is neither; write true or false', p_path, p_value)] END
$$;

CREATE FUNCTION redrive.count_mistakes(p_path text, p_value jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_value IS NULL
                  OR jsonb_typeof(p_value) = 'number' AND p_value::text ~ '^[0-9]{1,10}$' AND p_value::text::numeric <= 4294967295
           THEN '{}'::text[]
           ELSE ARRAY[format('%s: %s is not a count; write a whole number from 0 to 4294967295', p_path, p_value)] END
$$;
