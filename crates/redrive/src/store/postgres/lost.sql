SELECT redrive.lost($1, $2, $3)
