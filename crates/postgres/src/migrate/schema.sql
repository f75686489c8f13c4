COMMENT ON SCHEMA egret IS 'Belongs to Egret; `egret uninstall` removes it.';
CREATE TABLE IF NOT EXISTS egret.migration (
    engine     text        NOT NULL,
    position   integer     NOT NULL,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (engine, position)
);
