-- A job's kind where it stands, too: who asks for other kinds passes it by without reading what it is.
ALTER TABLE redrive_live ADD COLUMN kind TEXT NOT NULL DEFAULT '';
UPDATE redrive_live
SET kind = coalesce((SELECT jobs.kind FROM redrive_jobs AS jobs WHERE jobs.seq = redrive_live.seq), '');
