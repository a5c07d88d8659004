SELECT job, how FROM redrive.admit($1, $2::text::jsonb, $3::text::jsonb)
