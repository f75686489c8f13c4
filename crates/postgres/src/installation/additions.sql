-- What users have added to tables that Egret has made, and that PostgreSQL drops silently with these: row security policies,
-- columns and indexes, with the statement that drops each. $1 relations and $2 those of single views by name, $3 indexes of Egret's.
-- Columns and indexes of single views' tables follow from the views: what is added there is not told from them.
WITH own AS (
    SELECT class.oid, class.relname::text AS name
    FROM pg_catalog.pg_class AS class
    WHERE class.relnamespace = pg_catalog.to_regnamespace('egret') AND class.relkind IN ('r', 'p')
), known (name, columns) AS (VALUES
    ('migration', '{engine,position,name,checksum,applied_at}'::text[]),
    ('outbox', '{queue,key,payload,is_json,priority,ordering_key,run_at,max_attempts,timeout_ms,unique_key,unique_window_ms,tags,metadata,callback_url,traceparent,enqueued_by,transaction,chain,after}'),
    ('outbox_rejected', '{queue,key,payload,is_json,priority,ordering_key,run_at,max_attempts,timeout_ms,unique_key,unique_window_ms,tags,metadata,callback_url,traceparent,enqueued_by,code,reason,rejected_at,chain,after}'),
    ('outbox_limit', '{only_one,payload_bytes_max,chain_bytes_max}'),
    ('document_owner', '{only_one,epoch,number,forgotten}'),
    ('document_tenant', '{tenant_id,name}'),
    ('collection', '{collection_id,name,definition,version,created_at,changed_at}'),
    ('document', '{tenant_id,collection_id,number,id,version,modified_at,created_by,modified_by,trace_id,targets,body}'),
    ('document_alias', '{tenant_id,collection_id,alias,number}'),
    ('document_edge', '{tenant_id,collection_id,source,target,target_2,target_3,target_4}'),
    ('document_version', '{tenant_id,collection_id,number,version,id,created_by,modified_at,modified_by,trace_id,replaced_at,replaced_by,is_deleted,body}'),
    ('document_request', '{tenant_id,key,print,at,kinds,ids,versions}'),
    ('query_path', '{path_id,collection_id,path,kind,is_plain,state,built_tenant,built_number}'),
    ('document_value', '{path_id,tenant_id,number,has_value,number_key,string_key}'),
    ('document_subscription', '{tenant_id,name,collection_id,kind,target,position,created_at}'),
    ('document_feed', '{position,epoch,group_id,is_relaxed,at,kinds,tenants,collections,ids,versions}'),
    ('view', '{id,schema,name,query,definition,inlined,settings,owner,mode,indexes,schedule,shape,state,reason,failures,snapshot,stamp,fresh_at,created_at,changes_kept_ms,sequence,queue,clock,depends_on}'),
    ('view_capture', '{id,relation,view,is_unlogged,segment,columns,triggers}'),
    ('view_table', '{view,place,name,columns,capture,reads}'),
    ('view_statement', '{view,xid,id,open,has_pending}'),
    ('view_refresh', '{view,at,outcome,why,snapshot,changes,added,changed,removed,took_ms,waited_ms,applied_ms,error,plans}'),
    ('view_request', '{id,what,schema,name,query,definition,settings,mode,schedule,role,asked_at,done_at,error}'),
    ('view_incarnation', '{is_only,incarnation}'),
    ('view_change_set', '{view,sequence,at,snapshot,reset,changes,size_bytes}'),
    ('view_change', '{view,sequence,place,weight,content}'),
    ('view_handed_over', '{view,sequence}')
)
SELECT 'policy' AS kind,
       coalesce(pg_catalog.pg_describe_object(policy.tableoid, policy.oid, 0), policy.polname::text) AS object,
       pg_catalog.format('DROP POLICY %I ON egret.%I', policy.polname, own.name) AS command
FROM pg_catalog.pg_policy AS policy
JOIN own ON own.oid = policy.polrelid
WHERE own.name ~ $1 OR own.name ~ $2
UNION ALL
SELECT 'column',
       coalesce(pg_catalog.pg_describe_object('pg_catalog.pg_class'::regclass, part.attrelid, part.attnum), part.attname::text),
       pg_catalog.format('ALTER TABLE egret.%I DROP COLUMN %I', own.name, part.attname)
FROM pg_catalog.pg_attribute AS part
JOIN own ON own.oid = part.attrelid
JOIN known ON known.name = own.name
WHERE part.attnum > 0 AND NOT part.attisdropped AND part.attname::text <> ALL (known.columns)
UNION ALL
SELECT 'index',
       coalesce(pg_catalog.pg_describe_object('pg_catalog.pg_class'::regclass, index.indexrelid, 0), class.relname::text),
       pg_catalog.format('DROP INDEX egret.%I', class.relname)
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
JOIN own ON own.oid = index.indrelid
JOIN known ON known.name = own.name
WHERE class.relname::text !~ $3
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint AS made WHERE made.conindid = index.indexrelid)
ORDER BY 1, 2
