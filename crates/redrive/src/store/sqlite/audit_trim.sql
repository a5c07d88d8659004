DELETE FROM redrive_audit WHERE n <= (SELECT max(n) FROM redrive_audit) - ?1
