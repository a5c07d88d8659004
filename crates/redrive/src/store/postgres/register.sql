INSERT INTO redrive.holders (id, name, until) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET until = excluded.until
