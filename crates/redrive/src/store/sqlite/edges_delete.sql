DELETE FROM redrive_edges WHERE before = ?1 RETURNING after
