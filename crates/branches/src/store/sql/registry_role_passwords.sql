ALTER TABLE branch ADD COLUMN role_passwords INTEGER NOT NULL DEFAULT 0;

CREATE TABLE role_password (
    branch      TEXT NOT NULL,
    role        TEXT NOT NULL,
    verifier    TEXT NOT NULL,
    valid_until INTEGER,
    PRIMARY KEY (branch, role)
) STRICT, WITHOUT ROWID;
