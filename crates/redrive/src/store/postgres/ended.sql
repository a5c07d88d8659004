SELECT id, state, output FROM redrive.ended($1, $2, $3)
