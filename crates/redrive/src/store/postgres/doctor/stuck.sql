-- Holders whose lease has been over for longer than $1 ms and whose jobs nobody took back, the longest first.
SELECT h.name, (SELECT redrive.now_ms()) - h.until, sum(c.unsettled)::bigint
FROM redrive.holders AS h JOIN redrive.claims AS c ON c.holder = h.id
WHERE h.until < (SELECT redrive.now_ms()) - $1
GROUP BY h.id, h.name, h.until ORDER BY h.until
