-- Jobs that wait for others to succeed. A row goes when the first has succeeded; what has none left may begin. The job
-- that both belong to, or that the second is, is let go as well if the first ends badly.
CREATE TABLE redrive_edges (
    before    INTEGER NOT NULL,
    after     INTEGER NOT NULL,
    execution INTEGER NOT NULL,
    PRIMARY KEY (before, after)
) STRICT, WITHOUT ROWID;
CREATE INDEX redrive_edges_after ON redrive_edges (after);
