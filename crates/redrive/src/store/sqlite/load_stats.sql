SELECT queue, name, value FROM redrive_stats
