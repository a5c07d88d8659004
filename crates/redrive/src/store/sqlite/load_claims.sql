-- A job runs if a claim lists it at its current attempt; what else a claim lists has been settled.
SELECT claims.id, claims.holder, claims.claimed_at, live.seq, live.attempt, live.queue, live.ordering_key
FROM redrive_claims AS claims, json_each(claims.jobs) AS listed
CROSS JOIN redrive_live AS live
    ON live.seq = json_extract(listed.value, '$[0]') AND live.attempt = json_extract(listed.value, '$[1]')
