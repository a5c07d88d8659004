INSERT INTO redrive_holders (id, name, outlives, until) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (id) DO UPDATE SET until = excluded.until
