SELECT * FROM redrive.claimed((SELECT coalesce(array_agg(id), '{}') FROM redrive.claims WHERE holder = $1))
