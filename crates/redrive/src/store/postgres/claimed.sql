SELECT * FROM redrive.claimed($1)
