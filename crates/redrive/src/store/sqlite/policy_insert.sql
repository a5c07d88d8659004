INSERT INTO redrive_policies (version, body) VALUES (?1, ?2) ON CONFLICT (body) DO NOTHING
