DELETE FROM redrive_activity WHERE n <= (SELECT max(n) FROM redrive_activity) - ?1
