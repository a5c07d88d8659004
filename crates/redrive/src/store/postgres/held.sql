SELECT id FROM redrive.claims WHERE holder = $1
