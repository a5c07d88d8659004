-- The fence: nothing happens unless the attempt is still the one that was claimed.
DELETE FROM redrive_live WHERE seq = ?1 AND attempt = ?2
