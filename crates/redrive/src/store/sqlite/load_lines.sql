SELECT DISTINCT queue, destination FROM redrive_live INDEXED BY redrive_live_line WHERE held >= 2
