-- Finished work is kept by the day: forgetting a day is dropping its tables. What falls outside of the days that were
-- made goes to the table for all others, and is forgotten there one by one.

CREATE FUNCTION redrive.day_start(p_day date) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (p_day - date '1970-01-01')::bigint * 86400000
$$;

-- The first id that can be made at this time.
CREATE FUNCTION redrive.first_id(p_ms bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(p_ms), 12, '0') || repeat('0', 20))::uuid
$$;

-- Makes the tables of a day. If rows of that day are there already, the day stays where they are.
CREATE FUNCTION redrive.make_day(p_day date) RETURNS boolean LANGUAGE plpgsql AS $$
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

-- The days for which there are tables, oldest first.
CREATE FUNCTION redrive.days() RETURNS SETOF date LANGUAGE sql STABLE AS $$
    SELECT to_date(substr(c.relname, 6), 'YYYYMMDD')
    FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace = 'redrive'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^jobs_[0-9]{8}$'
    ORDER BY 1
$$;

-- Drops the tables of a day. What must be kept (a job that still waits or needs a person, and its history) moves to the
-- table for all others first. Answers how many jobs were forgotten.
CREATE FUNCTION redrive.drop_day(p_day date, p_succeeded bigint, p_cancelled bigint) RETURNS bigint
LANGUAGE plpgsql
SET jit = off
AS $$
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
END $$;
