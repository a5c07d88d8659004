-- A queue with a tally is one that people have used, and is counted from then on.
WITH queue AS (
    INSERT INTO redrive.queues (name, paused) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET paused = excluded.paused RETURNING id
)
INSERT INTO redrive.tallies (queue, counts) SELECT id, '{"enqueued": 0}' FROM queue
