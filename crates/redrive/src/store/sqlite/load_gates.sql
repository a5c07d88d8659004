SELECT name, state, next_us, retry_us, sent FROM redrive_gates
