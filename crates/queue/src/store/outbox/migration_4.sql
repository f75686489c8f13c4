-- Rows of roles that are held back are stepped over, however many there are.

CREATE INDEX outbox_role ON egret.outbox (queue, enqueued_by, key);
