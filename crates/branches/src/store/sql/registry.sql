CREATE TABLE template (
    id                 TEXT PRIMARY KEY,
    state              TEXT NOT NULL,
    origin_branch      TEXT,
    tenant             TEXT,
    origin_branch_name TEXT,
    source             TEXT NOT NULL,
    lsn                TEXT NOT NULL,
    taken_at           INTEGER NOT NULL,
    postgres_major     INTEGER NOT NULL,
    preload_libraries  TEXT NOT NULL,
    phases             TEXT NOT NULL
) STRICT;

CREATE TABLE branch (
    id            TEXT PRIMARY KEY,
    tenant        TEXT NOT NULL,
    name          TEXT NOT NULL,
    state         TEXT NOT NULL,
    template      TEXT NOT NULL,
    parent_branch TEXT,
    origin        TEXT NOT NULL,
    preset        TEXT NOT NULL,
    durable       INTEGER NOT NULL,
    protected     INTEGER NOT NULL,
    settings      TEXT NOT NULL,
    labels        TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    ttl_ms        INTEGER,
    expires_at    INTEGER,
    failure       TEXT,
    receipt       TEXT,
    boot_id       TEXT,
    pid           INTEGER,
    start_ticks   INTEGER
) STRICT;

-- A name is free again as soon as its branch is a tombstone.
CREATE UNIQUE INDEX branch_name ON branch (tenant, name) WHERE state <> 'destroying';
