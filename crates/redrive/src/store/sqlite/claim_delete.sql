DELETE FROM redrive_claims WHERE id = ?1
