SELECT done, changed FROM redrive.steer($1, $2::text::jsonb, $3::text::jsonb)
