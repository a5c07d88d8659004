DELETE FROM redrive_edges WHERE before = ?1 OR after = ?1
