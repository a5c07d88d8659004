WITH put AS (
    INSERT INTO redrive.audit (id, at, who, token, what, target, job, result, detail)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (id) DO UPDATE SET result = excluded.result, detail = excluded.detail RETURNING n
)
DELETE FROM redrive.audit AS a USING put WHERE a.n <= put.n - $10
