SELECT id, claimed_at, seqs, attempts, dues FROM redrive.claims WHERE id = ANY ($1)
