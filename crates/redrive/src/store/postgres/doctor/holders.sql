-- How many instances are alive, how many queues there are, and whether anything waits in them.
SELECT (SELECT count(*) FROM redrive.holders AS h WHERE h.until >= redrive.now_ms()),
       (SELECT count(*) FROM redrive.queues),
       EXISTS (SELECT FROM redrive.live)
