SELECT 1 FROM redrive_edges WHERE after = ?1
