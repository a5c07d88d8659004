-- How many of each listed group died in each part of the time: ?1 is when the first part begins, ?2 how long one is.
-- Counted in one pass before they are looked for: not one pass for each group.
WITH deaths (fingerprint, part, count) AS MATERIALIZED (
    SELECT done.fingerprint, (done.finished_at - ?1) / ?2, count(*)
    FROM redrive_done AS done INDEXED BY redrive_done_dead
    WHERE done.state = 'dead' GROUP BY 1, 2
)
SELECT listed.key, deaths.part, deaths.count
FROM json_each(?3) AS listed CROSS JOIN deaths ON deaths.fingerprint IS listed.value
