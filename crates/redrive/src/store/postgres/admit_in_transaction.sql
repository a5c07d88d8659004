SELECT job::text AS id, how FROM redrive.admit_in_transaction($1::text::jsonb)
