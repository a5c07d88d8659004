SELECT c.relname::text, t.relname::text
FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_class AS t ON t.oid = i.indrelid
WHERE c.relnamespace = to_regnamespace('redrive') AND NOT (i.indisvalid AND i.indisready AND i.indislive)
ORDER BY 1
