SELECT p.name, l.version, l.active, l.state, l.next_us, l.retry_us, l.sent, l.written
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::boolean[], $5::bigint[], $7::uuid[], $8::text[])
    AS p (name, version, state, active, sent, job, note)
CROSS JOIN LATERAL redrive.learn(p.name, p.version, p.state, p.active, p.sent, $6, p.job, p.note) AS l
