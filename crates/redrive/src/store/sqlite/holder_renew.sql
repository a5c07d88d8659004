UPDATE redrive_holders SET until = ?2 WHERE id = ?1
