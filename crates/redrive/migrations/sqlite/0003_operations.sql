-- What is kept for the people who operate it.

-- What has happened in each minute, everywhere. Written once for a transaction, with what happened.
CREATE TABLE redrive_minutes (
    minute    INTEGER PRIMARY KEY,
    enqueued  INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    dead      INTEGER NOT NULL
) STRICT;

-- Every change that somebody asked for. Bounded.
CREATE TABLE redrive_audit (
    n      INTEGER PRIMARY KEY AUTOINCREMENT,
    id     TEXT NOT NULL UNIQUE,
    at     INTEGER NOT NULL,
    who    TEXT NOT NULL,
    token  TEXT,
    what   TEXT NOT NULL,
    target TEXT NOT NULL,
    job    TEXT,
    result TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX redrive_audit_job ON redrive_audit (job, n) WHERE job IS NOT NULL;

-- What somebody was to be told, each thing once. Bounded.
CREATE TABLE redrive_notices (
    n       INTEGER PRIMARY KEY AUTOINCREMENT,
    key     TEXT NOT NULL UNIQUE,
    at      INTEGER NOT NULL,
    rule    TEXT NOT NULL,
    what    TEXT NOT NULL,
    job     TEXT,
    message TEXT NOT NULL
) STRICT;

-- What jobs were before they were corrected.
CREATE TABLE redrive_edits (
    seq    INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    before TEXT NOT NULL,
    PRIMARY KEY (seq, n)
) STRICT, WITHOUT ROWID;
