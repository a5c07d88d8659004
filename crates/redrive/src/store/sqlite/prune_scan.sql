SELECT seq, state, why, finished_at FROM redrive_done WHERE seq > ?1 ORDER BY seq LIMIT ?2
