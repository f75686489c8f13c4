-- Values at query paths, in one narrow table whose only index serves every path of every collection: how many indexes a write opens does not
-- depend on how many paths are declared.

CREATE TABLE egret.query_path (
    path_id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    collection_id integer NOT NULL,
    -- Names of the properties that lead to the value.
    path text[] NOT NULL,
    -- How values compare: 's' as strings by code point, 'n' as decimal numbers, 'b' as booleans.
    kind "char" NOT NULL CHECK (kind IN ('s', 'n', 'b')),
    -- Whether no name could be taken for the index of an array's element.
    is_plain boolean NOT NULL,
    -- 'b': the values of earlier documents are being added; 'a': all values are there; 'd': no longer declared, the values are being deleted.
    -- Only the owner adds paths and drops them, while it writes no documents.
    state "char" NOT NULL CHECK (state IN ('b', 'a', 'd')),
    -- While values are being added: the last document whose values are there.
    built_tenant integer NOT NULL DEFAULT 0,
    built_number bigint NOT NULL DEFAULT '-9223372036854775808'
);
CREATE INDEX query_path_collection ON egret.query_path (collection_id);
COMMENT ON TABLE egret.query_path IS 'Paths by which documents can be queried.';

CREATE TABLE egret.document_value (
    path_id integer NOT NULL,
    tenant_id integer NOT NULL,
    number bigint NOT NULL,
    -- Whether the document has a value other than null at the path: each document of the collection has one row for each path.
    has_value boolean NOT NULL,
    -- A number, or 0 and 1 for booleans; else 0.
    number_key numeric NOT NULL,
    -- A string; else empty.
    string_key text COLLATE "C" NOT NULL,
    PRIMARY KEY (path_id, tenant_id, has_value, number_key, string_key, number)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
COMMENT ON TABLE egret.document_value IS 'The values of documents at query paths.';

-- The value at names that may look like indexes of elements: unlike #>, this leads through objects only.
CREATE FUNCTION egret.document_member(body jsonb, path text[]) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY path LOOP
        body := body -> name;
    END LOOP;
    RETURN body;
END
$$;

-- The columns of egret.document_value for a body and a path. The innermost query is evaluated once for each of both.
CREATE FUNCTION egret.document_key(body jsonb, path text[], kind "char", is_plain boolean)
RETURNS TABLE (has_value boolean, number_key numeric, string_key text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT t.has_value,
           CASE WHEN NOT t.has_value OR kind = 's' THEN 0::numeric WHEN kind = 'n' THEN t.value::numeric ELSE t.value::boolean::integer::numeric END,
           CASE WHEN t.has_value AND kind = 's' THEN t.value #>> '{}' ELSE '' END
    FROM (SELECT s.value,
                 coalesce(CASE kind WHEN 's' THEN pg_catalog.jsonb_typeof(s.value) <> 'null' WHEN 'n' THEN pg_catalog.jsonb_typeof(s.value) = 'number'
                               ELSE pg_catalog.jsonb_typeof(s.value) = 'boolean' END, false) AS has_value
          FROM (SELECT CASE WHEN is_plain THEN body #> path ELSE egret.document_member(body, path) END AS value OFFSET 0) AS s OFFSET 0) AS t
$$;

-- Without ON CONFLICT, which costs as much again: a document that is deleted leaves no values.
CREATE FUNCTION egret.document_inserted() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    INSERT INTO egret.document_value (path_id, tenant_id, number, has_value, number_key, string_key)
    SELECT p.path_id, d.tenant_id, d.number, k.has_value, k.number_key, k.string_key
    FROM inserted AS d
    JOIN egret.query_path AS p ON p.collection_id = d.collection_id AND p.state <> 'd'
    CROSS JOIN LATERAL egret.document_key(d.body, p.path, p.kind, p.is_plain) AS k;
    RETURN NULL;
END
$$;

-- Rows are found by the index, each by itself, whatever a cached plan knows of the size of the table.
CREATE FUNCTION egret.document_updated() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET enable_hashjoin = on
AS $$
BEGIN
    WITH changed AS MATERIALIZED (
        SELECT p.path_id, o.tenant_id, o.number, a.has_value AS had_value, a.number_key AS old_number, a.string_key AS old_string,
               b.has_value, b.number_key, b.string_key
        FROM replaced AS o
        JOIN updated AS n USING (tenant_id, collection_id, number)
        JOIN egret.query_path AS p ON p.collection_id = o.collection_id AND p.state <> 'd'
        CROSS JOIN LATERAL egret.document_key(o.body, p.path, p.kind, p.is_plain) AS a
        CROSS JOIN LATERAL egret.document_key(n.body, p.path, p.kind, p.is_plain) AS b
        WHERE (a.has_value, a.number_key, a.string_key) IS DISTINCT FROM (b.has_value, b.number_key, b.string_key)
    ), removed AS (
        DELETE FROM egret.document_value AS v WHERE v.ctid = ANY (ARRAY(
            SELECT f.place FROM changed AS c
            CROSS JOIN LATERAL (SELECT x.ctid AS place FROM egret.document_value AS x
                WHERE x.path_id = c.path_id AND x.tenant_id = c.tenant_id AND x.has_value = c.had_value
                  AND x.number_key = c.old_number AND x.string_key = c.old_string AND x.number = c.number OFFSET 0) AS f))
    )
    INSERT INTO egret.document_value (path_id, tenant_id, number, has_value, number_key, string_key)
    SELECT c.path_id, c.tenant_id, c.number, c.has_value, c.number_key, c.string_key FROM changed AS c
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE FUNCTION egret.document_deleted() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    DELETE FROM egret.document_value AS v WHERE v.ctid = ANY (ARRAY(
        SELECT f.place FROM deleted AS d
        JOIN egret.query_path AS p ON p.collection_id = d.collection_id AND p.state <> 'd'
        CROSS JOIN LATERAL egret.document_key(d.body, p.path, p.kind, p.is_plain) AS k
        CROSS JOIN LATERAL (SELECT x.ctid AS place FROM egret.document_value AS x
            WHERE x.path_id = p.path_id AND x.tenant_id = d.tenant_id AND x.has_value = k.has_value
              AND x.number_key = k.number_key AND x.string_key = k.string_key AND x.number = d.number OFFSET 0) AS f));
    RETURN NULL;
END
$$;

-- By these names Egret knows its own triggers; views give theirs numbers from 1.
CREATE TRIGGER egret_insert_0 AFTER INSERT ON egret.document REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION egret.document_inserted();
CREATE TRIGGER egret_update_0 AFTER UPDATE ON egret.document REFERENCING OLD TABLE AS replaced NEW TABLE AS updated
    FOR EACH STATEMENT EXECUTE FUNCTION egret.document_updated();
CREATE TRIGGER egret_delete_0 AFTER DELETE ON egret.document REFERENCING OLD TABLE AS deleted
    FOR EACH STATEMENT EXECUTE FUNCTION egret.document_deleted();
