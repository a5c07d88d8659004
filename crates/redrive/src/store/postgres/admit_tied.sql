SELECT job, how FROM redrive.admit_tied($1, $2::text::jsonb, $3::text::jsonb, $4, $5, $6, $7::text::jsonb)
