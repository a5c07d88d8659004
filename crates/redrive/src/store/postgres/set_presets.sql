WITH gone AS (DELETE FROM redrive.presets WHERE name <> ALL ($1)),
     set AS (
         INSERT INTO redrive.presets (name, body) SELECT * FROM unnest($1, $2)
         ON CONFLICT (name) DO UPDATE SET body = excluded.body
     )
INSERT INTO redrive.meta (name, value) VALUES ('presets', $3)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
