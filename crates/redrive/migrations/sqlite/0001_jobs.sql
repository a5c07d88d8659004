-- What is decided in Rust is kept here. Times are whole milliseconds since 1970.
-- Tables begin with redrive_ because they may live in your own database file.

CREATE TABLE redrive_meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE redrive_queues (
    id     INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE,
    paused INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Each distinct policy once, by value: a row never changes, so a job's policy cannot change under it.
CREATE TABLE redrive_policies (
    id      INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    body    TEXT NOT NULL UNIQUE
) STRICT;

-- What a job is. Written once; the checksum covers what must not change at rest.
-- A place is never given twice: claims list jobs by it, and may list one that is forgotten.
CREATE TABLE redrive_jobs (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    kind         TEXT NOT NULL,
    queue        INTEGER NOT NULL REFERENCES redrive_queues (id),
    priority     INTEGER NOT NULL,
    policy       INTEGER NOT NULL REFERENCES redrive_policies (id),
    created_at   INTEGER NOT NULL,
    checksum     INTEGER NOT NULL,
    external     INTEGER NOT NULL DEFAULT 0,
    unique_key   TEXT,
    ordering_key TEXT,
    destination  TEXT,
    parent       TEXT,
    labels       TEXT,
    deadline     INTEGER,
    start_by     INTEGER,
    timeout_ms   INTEGER,
    revived_at   INTEGER,
    payload      TEXT NOT NULL
) STRICT;
CREATE INDEX redrive_jobs_parent ON redrive_jobs (parent) WHERE parent IS NOT NULL;

-- Where a job stands that is not final: small rows, because these are what changes.
CREATE TABLE redrive_live (
    seq           INTEGER PRIMARY KEY,
    queue         INTEGER NOT NULL,
    priority      INTEGER NOT NULL,
    due_at        INTEGER NOT NULL,
    -- 0 in the due scan, 1 behind another of its ordering key, 2 and 3 in its destination's line: first attempt, retry.
    held          INTEGER NOT NULL DEFAULT 0,
    attempt       INTEGER NOT NULL DEFAULT 0,
    failures      INTEGER NOT NULL DEFAULT 0,
    crashes       INTEGER NOT NULL DEFAULT 0,
    snoozes       INTEGER NOT NULL DEFAULT 0,
    holds         INTEGER NOT NULL DEFAULT 0,
    interruptions INTEGER NOT NULL DEFAULT 0,
    generation    INTEGER NOT NULL DEFAULT 0,
    reason        TEXT,
    last_delay_ms INTEGER,
    -- How long it was due and stood in its destination's line, before attempts that have begun.
    in_line_ms    INTEGER NOT NULL DEFAULT 0,
    expires_at    INTEGER,
    ordering_key  TEXT,
    destination   TEXT
) STRICT;
CREATE INDEX redrive_live_due ON redrive_live (queue, priority, due_at) WHERE held = 0;
CREATE INDEX redrive_live_expires ON redrive_live (queue, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX redrive_live_order ON redrive_live (queue, ordering_key, seq) WHERE ordering_key IS NOT NULL;
CREATE INDEX redrive_live_line ON redrive_live (destination, queue, held, priority DESC, due_at, seq) WHERE held >= 2;

-- Destinations that have something to say: how they stand, and what changes with every call.
CREATE TABLE redrive_gates (
    name     TEXT NOT NULL PRIMARY KEY,
    state    TEXT NOT NULL,
    next_us  INTEGER NOT NULL,
    retry_us INTEGER NOT NULL,
    sent     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Unique among jobs that are not final.
CREATE TABLE redrive_keys (
    key TEXT NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How a job ended. Its last attempt, if that succeeded, is this row.
CREATE TABLE redrive_done (
    seq           INTEGER PRIMARY KEY,
    state         TEXT NOT NULL,
    why           TEXT,
    started_at    INTEGER,
    finished_at   INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    snoozes       INTEGER NOT NULL,
    holds         INTEGER NOT NULL,
    interruptions INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    fingerprint   TEXT,
    output        TEXT
) STRICT;
CREATE INDEX redrive_done_dead ON redrive_done (seq) WHERE state = 'dead';
CREATE INDEX redrive_done_fingerprint ON redrive_done (fingerprint, seq) WHERE fingerprint IS NOT NULL;

-- Attempts that did not succeed.
CREATE TABLE redrive_attempts (
    seq         INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER NOT NULL,
    ending      TEXT NOT NULL,
    failure     TEXT,
    fingerprint TEXT,
    rule        TEXT,
    next_at     INTEGER,
    PRIMARY KEY (seq, attempt)
) STRICT, WITHOUT ROWID;

-- Who may hold jobs, and until when.
CREATE TABLE redrive_holders (
    id       TEXT NOT NULL PRIMARY KEY,
    name     TEXT NOT NULL,
    -- Whether it is no part of the process that has the file, and lives on when that has died.
    outlives INTEGER NOT NULL DEFAULT 0,
    until    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row for each claimed batch: a JSON array of [seq, attempt]. A job runs if a claim lists it at its attempt.
CREATE TABLE redrive_claims (
    id         TEXT NOT NULL PRIMARY KEY,
    holder     TEXT NOT NULL REFERENCES redrive_holders (id),
    claimed_at INTEGER NOT NULL,
    jobs       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Answers to callers who may send the same again.
CREATE TABLE redrive_calls (
    key    TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL,
    answer TEXT NOT NULL,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What is kept beside the jobs, such as tokens.
CREATE TABLE redrive_records (
    shelf TEXT NOT NULL,
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (shelf, name)
) STRICT, WITHOUT ROWID;

-- How often what has happened in each queue, ever.
CREATE TABLE redrive_stats (
    queue INTEGER NOT NULL,
    name  TEXT NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

-- What a person would want to have been told. Bounded.
CREATE TABLE redrive_activity (
    n       INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    what    TEXT NOT NULL,
    job     TEXT NOT NULL,
    kind    TEXT NOT NULL,
    queue   TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;
