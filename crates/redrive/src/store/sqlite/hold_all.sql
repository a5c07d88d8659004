INSERT INTO redrive_meta (name, value) VALUES ('held', '1') ON CONFLICT (name) DO NOTHING
