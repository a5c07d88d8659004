-- For a row whose own key cannot be trusted.
DELETE FROM redrive_keys WHERE seq = ?1
