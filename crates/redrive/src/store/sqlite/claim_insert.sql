INSERT INTO redrive_claims (id, holder, claimed_at, jobs) VALUES (?1, ?2, ?3, ?4)
