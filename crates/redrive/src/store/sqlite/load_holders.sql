SELECT id, until FROM redrive_holders
