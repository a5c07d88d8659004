-- How long ago somebody looked through a queue. By itself, because a standby cannot read an unlogged table.
SELECT c.queue, redrive.now_ms() - max(c.swept_at) FROM redrive.cursors AS c GROUP BY c.queue
