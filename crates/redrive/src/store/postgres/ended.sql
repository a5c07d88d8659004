SELECT id, state, output FROM redrive.ended($1)
