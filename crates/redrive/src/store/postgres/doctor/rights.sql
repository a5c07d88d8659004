-- The tables of a new day are made, and those of an old one dropped, by whoever owns them. Rows that outlive their day
-- pass through a temporary table.
SELECT current_user::text, pg_get_userbyid(c.relowner)::text, pg_has_role(current_user, c.relowner, 'USAGE'),
       has_schema_privilege(current_user, c.relnamespace, 'CREATE'),
       has_database_privilege(current_user, current_database(), 'TEMPORARY')
FROM pg_class AS c WHERE c.oid = to_regclass('redrive.jobs')
