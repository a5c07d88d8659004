SELECT count(*) FROM redrive_live INDEXED BY redrive_live_line WHERE destination = ?1 AND held >= 2
