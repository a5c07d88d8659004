DELETE FROM redrive_notices WHERE n <= (SELECT max(n) FROM redrive_notices) - ?1
