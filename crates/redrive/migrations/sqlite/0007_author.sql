-- Who asked for a job, where that was said.
ALTER TABLE redrive_jobs ADD COLUMN author TEXT;
