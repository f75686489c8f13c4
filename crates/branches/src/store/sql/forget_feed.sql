UPDATE egret.document_owner SET forgotten = greatest(forgotten, (SELECT max(position) FROM egret.document_feed));
DELETE FROM ONLY egret.document_feed WHERE position < (SELECT max(position) FROM egret.document_feed);
UPDATE ONLY egret.document_feed SET kinds = '{}', tenants = '{}', collections = '{}', ids = '{}', versions = '{}';
