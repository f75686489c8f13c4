DROP FUNCTION IF EXISTS egret.enqueue, egret.enqueue_bytes, egret.outbox_put, egret.outbox_link,
    egret.enqueue_without_after, egret.enqueue_bytes_without_after;
DROP TABLE IF EXISTS egret.outbox, egret.outbox_rejected, egret.outbox_limit;
DROP FUNCTION IF EXISTS egret.outbox_key
