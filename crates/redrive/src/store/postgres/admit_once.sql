SELECT job, how FROM redrive.admit_once($1, $2::text::jsonb, $3::text::jsonb, $4, $5, $6)
