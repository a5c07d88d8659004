-- One statement, so that what was done and who asked for it are written together. MATERIALIZED: it is done once.
WITH steered AS MATERIALIZED (
    SELECT done, changed FROM redrive.steer($1, $2::text::jsonb, $3::text::jsonb)
), put AS (
    INSERT INTO redrive.audit (id, at, who, token, what, target, job, result, detail)
    SELECT $4, $5, $6, $7, $8, $9, $10, $11, $12 FROM steered WHERE cardinality(done) > 0
    ON CONFLICT (id) DO UPDATE SET result = excluded.result, detail = excluded.detail
)
SELECT done, changed FROM steered
