SELECT n, state, output FROM redrive.ended($1)
