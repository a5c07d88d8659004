SELECT id, holder FROM redrive_claims
