UPDATE redrive_live SET held = 0, in_line_ms = in_line_ms + max(?2 - due_at, 0) WHERE seq = ?1 AND held >= 2
