-- What is decided in Rust is kept here. Times are whole milliseconds since 1970, by the database's clock.
-- What changes is small (live, claims, holders); what is finished is only ever added to, a day at a time.

CREATE TABLE redrive.queues (
    id       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name     text NOT NULL UNIQUE,
    paused   boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- The priorities that jobs of a queue have had. No unique index: whoever adds one must not wait for another who does.
CREATE TABLE redrive.bands (
    queue    integer NOT NULL,
    priority smallint NOT NULL
);
CREATE INDEX bands_queue ON redrive.bands (queue, priority);

-- Behind which due time and place claims of a band go on, when its due jobs were last looked through from the first one
-- on, and how long that took. The newest row counts. Only ever added to, so that old versions are never walked through,
-- and a mere hint: what a crash loses of it is looked through again.
CREATE UNLOGGED TABLE redrive.cursors (
    queue    integer NOT NULL,
    priority smallint NOT NULL,
    -- What was asked for: whoever asks for other kinds has not passed these.
    kinds    text NOT NULL,
    n        bigint NOT NULL,
    due_at   bigint NOT NULL,
    seq      bigint NOT NULL,
    swept_at bigint NOT NULL,
    sweep_ms bigint NOT NULL,
    -- What of redrive.freed had been seen by then.
    seen     pg_snapshot NOT NULL,
    PRIMARY KEY (queue, priority, kinds, n)
);
-- Jobs that waited for others may begin long before the end of the transaction that says so, and cursors may have passed
-- them then: where the first of those was due that a transaction let go. Claims that have not seen it go back there.
CREATE UNLOGGED TABLE redrive.freed (
    queue    integer NOT NULL,
    priority smallint NOT NULL,
    by       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    due_at   bigint NOT NULL
);
CREATE INDEX freed_by ON redrive.freed (queue, priority, by);

-- Each distinct policy once, by value: a row never changes, so a job's policy cannot change under it.
CREATE TABLE redrive.policies (
    id      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version integer NOT NULL,
    body    text NOT NULL
);
CREATE UNIQUE INDEX policies_body ON redrive.policies (hashtextextended(body, 0), hashtextextended(body, 1));

CREATE SEQUENCE redrive.places;

-- What a job is. An id begins with the millisecond in which it was made, so a range of ids is a day.
CREATE TABLE redrive.jobs (
    id           uuid NOT NULL PRIMARY KEY,
    seq          bigint NOT NULL,
    queue        integer NOT NULL,
    policy       integer NOT NULL,
    created_at   bigint NOT NULL,
    run_at       bigint NOT NULL,
    checksum     bigint,
    priority     smallint NOT NULL,
    external     boolean NOT NULL DEFAULT false,
    deadline     bigint,
    start_by     bigint,
    timeout_ms   bigint,
    revived_at   bigint,
    parent       uuid,
    kind         text NOT NULL,
    unique_key   text,
    ordering_key text,
    destination  text,
    labels       text,
    payload      text NOT NULL
) PARTITION BY RANGE (id);
CREATE TABLE redrive.jobs_other PARTITION OF redrive.jobs DEFAULT;
CREATE INDEX jobs_parent ON redrive.jobs (parent) WHERE parent IS NOT NULL;

-- Where a job stands that is not final. A claim reads these rows in the order of an index and writes none of them.
CREATE TABLE redrive.live (
    seq           bigint NOT NULL PRIMARY KEY,
    id            uuid NOT NULL,
    due_at        bigint NOT NULL,
    queue         integer NOT NULL,
    attempt       integer NOT NULL DEFAULT 0,
    failures      integer NOT NULL DEFAULT 0,
    crashes       integer NOT NULL DEFAULT 0,
    snoozes       integer NOT NULL DEFAULT 0,
    holds         integer NOT NULL DEFAULT 0,
    interruptions integer NOT NULL DEFAULT 0,
    generation    integer NOT NULL DEFAULT 0,
    priority      smallint NOT NULL,
    held          boolean NOT NULL DEFAULT false,
    last_delay_ms bigint,
    -- How long it was due and stood in its destination's line, before attempts that have begun.
    in_line_ms    bigint,
    expires_at    bigint,
    reason        text,
    ordering_key  text,
    destination   text,
    -- Where it stands in its destination's line instead of the due scan: 0 as a first attempt, 1 as a retry.
    line          smallint,
    -- How many rows of edges say that it comes after something.
    waits_for     integer
) WITH (
    -- Room for the next version of a row beside it: a job that is claimed again at once writes no index.
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX live_due ON redrive.live (queue, priority, due_at, seq) WHERE ordering_key IS NULL AND line IS NULL;
CREATE INDEX live_turn ON redrive.live (queue, priority, due_at, seq)
    WHERE ordering_key IS NOT NULL AND NOT held AND line IS NULL;
CREATE INDEX live_line ON redrive.live (destination, queue, line, priority DESC, due_at, seq) WHERE line IS NOT NULL;
CREATE INDEX live_order ON redrive.live (queue, ordering_key, seq) WHERE ordering_key IS NOT NULL;
CREATE INDEX live_expires ON redrive.live (queue, expires_at) WHERE expires_at IS NOT NULL;

-- Destinations that have something to say. What is decided in Rust is the state, and its version tells whether it is
-- still the one that was decided from; what changes with every call is beside it.
CREATE TABLE redrive.gates (
    name     text NOT NULL PRIMARY KEY,
    version  bigint NOT NULL,
    active   boolean NOT NULL,
    next_us  bigint NOT NULL DEFAULT 0,
    retry_us bigint NOT NULL DEFAULT 0,
    sent     bigint NOT NULL DEFAULT 0,
    state    text NOT NULL
) WITH (fillfactor = 50);
CREATE SEQUENCE redrive.gate_versions;

-- Unique among jobs that are not final.
CREATE TABLE redrive.keys (
    key text NOT NULL PRIMARY KEY,
    seq bigint NOT NULL,
    id  uuid NOT NULL
);

-- How a job ended that needs nobody. Its last attempt, if that succeeded, is this row.
CREATE TABLE redrive.done (
    seq           bigint NOT NULL,
    id            uuid NOT NULL,
    started_at    bigint,
    finished_at   bigint NOT NULL,
    queue         integer NOT NULL,
    attempt       integer NOT NULL DEFAULT 1,
    failures      integer NOT NULL DEFAULT 0,
    crashes       integer NOT NULL DEFAULT 0,
    snoozes       integer NOT NULL DEFAULT 0,
    holds         integer NOT NULL DEFAULT 0,
    interruptions integer NOT NULL DEFAULT 0,
    generation    integer NOT NULL DEFAULT 0,
    cancelled     boolean NOT NULL DEFAULT false,
    output        text
) PARTITION BY RANGE (finished_at);
CREATE TABLE redrive.done_other PARTITION OF redrive.done DEFAULT;
CREATE INDEX done_seq ON redrive.done (seq);

-- Jobs that need a person: kept until one acts.
CREATE TABLE redrive.dead (
    seq           bigint NOT NULL PRIMARY KEY,
    id            uuid NOT NULL,
    started_at    bigint,
    finished_at   bigint NOT NULL,
    queue         integer NOT NULL,
    attempt       integer NOT NULL,
    failures      integer NOT NULL,
    crashes       integer NOT NULL,
    snoozes       integer NOT NULL,
    holds         integer NOT NULL,
    interruptions integer NOT NULL,
    generation    integer NOT NULL,
    why           text NOT NULL,
    fingerprint   text
);
CREATE INDEX dead_fingerprint ON redrive.dead (fingerprint, seq) WHERE fingerprint IS NOT NULL;
CREATE INDEX dead_queue ON redrive.dead (queue);

-- Attempts that did not succeed.
CREATE TABLE redrive.attempts (
    seq         bigint NOT NULL,
    started_at  bigint NOT NULL,
    ended_at    bigint NOT NULL,
    next_at     bigint,
    attempt     integer NOT NULL,
    ending      text NOT NULL,
    failure     text,
    fingerprint text,
    rule        text
) PARTITION BY RANGE (ended_at);
CREATE TABLE redrive.attempts_other PARTITION OF redrive.attempts DEFAULT;
CREATE INDEX attempts_seq ON redrive.attempts (seq, attempt);

-- Who may hold jobs, and until when. One row and one renewal, however many jobs run.
CREATE TABLE redrive.holders (
    id    uuid NOT NULL PRIMARY KEY,
    until bigint NOT NULL,
    name  text NOT NULL
) WITH (fillfactor = 50);

-- One row for each claimed batch. A job runs if and only if a claim lists it at its attempt.
CREATE TABLE redrive.claims (
    id         uuid NOT NULL PRIMARY KEY,
    holder     uuid NOT NULL,
    claimed_at bigint NOT NULL,
    lowest     bigint NOT NULL,
    highest    bigint NOT NULL,
    -- Listed and not yet settled, or taken away and not yet missed.
    unsettled  integer NOT NULL,
    ordered    boolean NOT NULL,
    seqs       bigint[] NOT NULL,
    attempts   integer[] NOT NULL,
    -- If nothing has happened yet to any of them: which jobs they are and since when they are due. There is nothing more
    -- to be read about where they stand.
    ids        uuid[],
    dues       bigint[],
    -- Taken away, and its holder has not yet tried to settle it.
    lost       bigint[] NOT NULL DEFAULT '{}',
    lost_jobs  uuid[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 70);
-- Numbers that follow each other: compressing them takes longer than writing them.
ALTER TABLE redrive.claims ALTER seqs SET STORAGE EXTERNAL, ALTER attempts SET STORAGE EXTERNAL,
    ALTER ids SET STORAGE EXTERNAL, ALTER dues SET STORAGE EXTERNAL;
CREATE INDEX claims_holder ON redrive.claims (holder);
CREATE INDEX claims_highest ON redrive.claims (highest);

-- Answers to callers who may send the same again.
CREATE TABLE redrive.calls (
    key    text NOT NULL PRIMARY KEY,
    digest text NOT NULL,
    answer jsonb,
    at     bigint NOT NULL
);
CREATE INDEX calls_at ON redrive.calls (at);

-- What is kept beside the jobs, such as tokens.
CREATE TABLE redrive.records (
    shelf text NOT NULL,
    name  text NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (shelf, name)
);

-- How often what has happened in each queue: a row for each batch, folded now and then. Nobody waits for a counter.
CREATE TABLE redrive.tallies (
    queue  integer NOT NULL,
    counts jsonb NOT NULL
);

-- What a person would want to have been told. Bounded. What was written together is one row: when a destination is back,
-- thousands of jobs have the same to tell.
CREATE TABLE redrive.activity (
    n       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lines   integer GENERATED ALWAYS AS (cardinality(at)) STORED,
    at      bigint[] NOT NULL,
    job     uuid[] NOT NULL,
    what    text[] NOT NULL,
    kind    text[] NOT NULL,
    queue   text[] NOT NULL,
    message text[] NOT NULL
);
