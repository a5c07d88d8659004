SELECT redrive.put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text[]::jsonb[], $12, $13)
