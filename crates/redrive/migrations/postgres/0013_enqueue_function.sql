-- What the engine refuses or understands since, so does a job in a transaction of one's own: an empty ordering key, a label
-- without a name, a destination with control characters, a time too far away; and labels without any, as PHP writes them.

-- Makes a complete job of what was asked for, as `machine::admit` does in Rust, or says everything that is wrong with it.
CREATE OR REPLACE FUNCTION redrive.made_job(p_new jsonb, p_now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
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
END $$;

-- What is wrong with a job's names and labels.
CREATE OR REPLACE FUNCTION redrive.name_mistakes(p_new jsonb) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
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
