SELECT (SELECT count(*)
        FROM redrive_keys AS keys
        LEFT JOIN redrive_live AS live ON live.seq = keys.seq
        LEFT JOIN redrive_jobs AS jobs ON jobs.seq = keys.seq
        WHERE live.seq IS NULL OR jobs.unique_key IS NOT keys.key)
     + (SELECT count(*)
        FROM redrive_live AS live
        JOIN redrive_jobs AS jobs ON jobs.seq = live.seq
        LEFT JOIN redrive_keys AS keys ON keys.key = jobs.unique_key AND keys.seq = jobs.seq
        WHERE jobs.unique_key IS NOT NULL AND keys.key IS NULL)
