DROP VIEW egret.document_change;
DROP FUNCTION egret.document_write;
DROP FUNCTION egret.document_partitions;
DROP FUNCTION egret.document_number;
DROP TABLE egret.document_feed, egret.document_edge, egret.document_alias, egret.document, egret.collection, egret.document_tenant,
    egret.document_owner;
