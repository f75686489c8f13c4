-- Documents, what they are called, what they refer to, and what has become of them.
--
-- One Egret at a time writes here: see egret.document_owner. Whoever else does makes references dangle.

CREATE TABLE egret.document_owner (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    -- Each Egret that takes over writing adds one. A transaction that writes locks this row last, on condition that the epoch is its own, until it
    -- has committed: places in the feed are in the order of commits, without gaps. It is locked and seldom changed, as what changes with every
    -- transaction leaves versions behind that nobody can remove while somebody looks at an old state of the database, and all would go through them.
    epoch bigint NOT NULL,
    -- No document was given a number that is larger.
    number bigint NOT NULL,
    -- Up to this position the feed has been forgotten.
    forgotten bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);
INSERT INTO egret.document_owner (epoch, number) VALUES (0, 0);

CREATE TABLE egret.document_tenant (
    tenant_id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE
);

CREATE TABLE egret.collection (
    collection_id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE,
    definition jsonb NOT NULL,
    -- How often it was changed.
    version integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    changed_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE egret.collection IS 'Collections of documents as they were declared.';

CREATE TABLE egret.document (
    tenant_id integer NOT NULL,
    collection_id integer NOT NULL,
    -- The first half of its id: half of what an id takes in every index. One Egret gives them, so none is given twice.
    number bigint NOT NULL,
    -- Of version 7 (RFC 9562): its time is when the document was made.
    id uuid NOT NULL,
    version integer NOT NULL,
    modified_at timestamptz NOT NULL,
    created_by text,
    modified_by text,
    trace_id text,
    -- The numbers of the documents that it refers to, each once, in the order of its rows of egret.document_edge.
    targets bigint[] NOT NULL,
    body jsonb NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, number)
) PARTITION BY HASH (number);
COMMENT ON TABLE egret.document IS 'Documents. Written by Egret alone; read by whoever may.';

CREATE TABLE egret.document_alias (
    tenant_id integer NOT NULL,
    -- That of the document.
    collection_id integer NOT NULL,
    -- UUID of version 5 of the identity, in the namespace of its collection, or of an abstract one that this extends.
    alias uuid NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (tenant_id, alias)
) PARTITION BY HASH (alias);
COMMENT ON TABLE egret.document_alias IS 'By which identities documents are found.';

-- Edges, four to a row: a row has a header, and is an entry of the log, whatever is in it. Those of a document are in the order of its `targets`,
-- the first four in one row, and so on; a row goes and comes as a whole. One table, as each of the four is looked for.
CREATE TABLE egret.document_edge (
    tenant_id integer NOT NULL,
    -- That of the document that refers.
    collection_id integer NOT NULL,
    source bigint NOT NULL,
    target bigint NOT NULL,
    target_2 bigint,
    target_3 bigint,
    target_4 bigint,
    PRIMARY KEY (tenant_id, target, source)
) WITH (fillfactor = 100, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX document_edge_2 ON egret.document_edge (tenant_id, target_2, source) WHERE target_2 IS NOT NULL;
CREATE INDEX document_edge_3 ON egret.document_edge (tenant_id, target_3, source) WHERE target_3 IS NOT NULL;
CREATE INDEX document_edge_4 ON egret.document_edge (tenant_id, target_4, source) WHERE target_4 IS NOT NULL;
COMMENT ON TABLE egret.document_edge IS 'Which documents refer to which, four to a row; one by one they are in egret.document_reference.';

-- The condition stands outside: parts of a union that have one of their own are not read in the order of their indexes.
CREATE VIEW egret.document_reference AS
SELECT * FROM (
    SELECT tenant_id, collection_id, target, source FROM egret.document_edge
    UNION ALL SELECT tenant_id, collection_id, target_2, source FROM egret.document_edge
    UNION ALL SELECT tenant_id, collection_id, target_3, source FROM egret.document_edge
    UNION ALL SELECT tenant_id, collection_id, target_4, source FROM egret.document_edge
) AS e WHERE target IS NOT NULL;
COMMENT ON VIEW egret.document_reference IS 'Which documents refer to which, by their numbers.';

-- What documents were before, and what those were that are gone, of the collections that keep that.
CREATE TABLE egret.document_version (
    tenant_id integer NOT NULL,
    collection_id integer NOT NULL,
    number bigint NOT NULL,
    version integer NOT NULL,
    id uuid NOT NULL,
    created_by text,
    modified_at timestamptz NOT NULL,
    modified_by text,
    trace_id text,
    -- When it was the document no more, and whose doing that was.
    replaced_at timestamptz NOT NULL,
    replaced_by text,
    -- The document is gone, and this is what can be restored.
    is_deleted boolean NOT NULL,
    body jsonb NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, number, version)
) PARTITION BY HASH (number);
CREATE INDEX document_version_deleted ON egret.document_version (tenant_id, collection_id, number) WHERE is_deleted;
CREATE INDEX document_version_by_time ON egret.document_version (collection_id, replaced_at);
COMMENT ON TABLE egret.document_version IS 'What documents were before, and those that are gone, where their collection keeps that.';

-- What was answered to requests with a key of their own, so that one that comes again is answered the same and does nothing.
CREATE TABLE egret.document_request (
    tenant_id integer NOT NULL,
    -- Of the key and of who sent it.
    key uuid NOT NULL,
    -- Of what was asked for.
    print uuid NOT NULL,
    at timestamptz NOT NULL,
    kinds "char"[] NOT NULL,
    ids uuid[] NOT NULL,
    versions integer[] NOT NULL,
    PRIMARY KEY (tenant_id, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX document_request_by_time ON egret.document_request (at);

-- Who is told what becomes of documents, and how far they have been.
CREATE TABLE egret.document_subscription (
    tenant_id integer NOT NULL REFERENCES egret.document_tenant,
    name text NOT NULL,
    -- Of this collection alone.
    collection_id integer REFERENCES egret.collection,
    kind text NOT NULL CHECK (kind IN ('webhook', 'queue')),
    -- The address, or the name of the queue.
    target text NOT NULL,
    position bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    PRIMARY KEY (tenant_id, name)
);

-- A row for each transaction that wrote, so that following costs writers little; egret.document_change has a row for each change. The last
-- row stays for good: the next position follows from it.
CREATE TABLE egret.document_feed (
    -- That of its last change.
    position bigint PRIMARY KEY,
    -- Whose doing: an Egret that has lost the answer finds out by it whether its transaction committed.
    epoch bigint NOT NULL,
    group_id bigint NOT NULL,
    -- Whether a crash of the server may have taken it back.
    is_relaxed boolean NOT NULL,
    at timestamptz NOT NULL,
    kinds "char"[] NOT NULL,
    tenants integer[] NOT NULL,
    collections integer[] NOT NULL,
    ids uuid[] NOT NULL,
    versions integer[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE VIEW egret.document_change AS
SELECT f.position - pg_catalog.cardinality(f.ids) + c.place AS position, f.at, t.name AS tenant, l.name AS collection,
       CASE c.kind WHEN 'c' THEN 'create' WHEN 'u' THEN 'update' WHEN 'd' THEN 'delete' WHEN 'i' THEN 'identity_change' END AS kind,
       c.id, c.version
FROM egret.document_feed AS f,
     ROWS FROM (unnest(f.kinds), unnest(f.tenants), unnest(f.collections), unnest(f.ids), unnest(f.versions))
         WITH ORDINALITY AS c (kind, tenant_id, collection_id, id, version, place)
JOIN egret.document_tenant AS t USING (tenant_id)
LEFT JOIN egret.collection AS l USING (collection_id);
COMMENT ON VIEW egret.document_change IS 'What became of documents, in the order in which it was committed.';

CREATE FUNCTION egret.document_partitions(partitions integer, is_strict boolean) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    parent text;
    slot text;
    compression text;
BEGIN
    SELECT CASE WHEN 'lz4' = ANY (enumvals) THEN 'lz4' ELSE 'pglz' END INTO compression
    FROM pg_catalog.pg_settings WHERE name = 'default_toast_compression';
    EXECUTE pg_catalog.format('ALTER TABLE egret.document ALTER body SET COMPRESSION %I', compression);
    EXECUTE pg_catalog.format('ALTER TABLE egret.document_version ALTER body SET COMPRESSION %I', compression);
    FOREACH parent IN ARRAY '{document,document_alias,document_version}'::text[] LOOP
        FOR place IN 0 .. partitions - 1 LOOP
            EXECUTE pg_catalog.format(
                'CREATE TABLE egret.%I PARTITION OF egret.%I FOR VALUES WITH (MODULUS %s, REMAINDER %s) '
                'WITH (fillfactor = %s, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, '
                'autovacuum_vacuum_insert_scale_factor = 0.1)',
                parent || '_' || place, parent, partitions, place,
                -- Room for new versions beside the old ones; names are not changed.
                CASE parent WHEN 'document' THEN 90 ELSE 100 END);
        END LOOP;
    END LOOP;
    IF is_strict THEN
        ALTER TABLE egret.document ADD CONSTRAINT document_by_number UNIQUE (tenant_id, number);
        FOREACH slot IN ARRAY '{target,target_2,target_3,target_4}'::text[] LOOP
            EXECUTE pg_catalog.format(
                'ALTER TABLE egret.document_edge ADD FOREIGN KEY (tenant_id, %I) REFERENCES egret.document (tenant_id, number) ON DELETE RESTRICT', slot);
        END LOOP;
    END IF;
END
$$;

-- The number of a document: the first half of its id.
CREATE FUNCTION egret.document_number(id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ('x' || pg_catalog.left(pg_catalog.replace(id::text, '-', ''), 16))::bit(64)::bigint;

-- What a group of writes comes to, in one transaction: set by set, so that many cost little more than one. What it is given has been
-- decided by the owner: nothing here looks whether a reference resolves. Gives the place in the feed of its last change; or, where others
-- refer to documents that are to go, the numbers of these, and has written nothing.
CREATE FUNCTION egret.document_write(
    epoch bigint, group_id bigint, number_max bigint,
    -- Whether the group may be lost by a crash of the server.
    is_relaxed boolean,
    -- New documents; the targets of each are those up to its place in `new_ends`, from that of the one before.
    new_tenants integer[], new_collections integer[], new_ids uuid[], new_numbers bigint[], new_versions integer[], new_bodies jsonb[],
    new_creators text[], new_authors text[], new_traces text[], new_ends integer[], new_targets bigint[],
    -- Documents with another body.
    changed_tenants integer[], changed_collections integer[], changed_numbers bigint[], changed_bodies jsonb[],
    changed_authors text[], changed_traces text[], changed_ends integer[], changed_targets bigint[],
    gone_tenants integer[], gone_collections integer[], gone_numbers bigint[],
    -- Those of them that may only go if nobody refers to them, whatever goes before them in the group aside; of the others that is known.
    checked_tenants integer[], checked_numbers bigint[], checked_places integer[],
    -- Documents of which it is kept what they were until now: how many versions of them.
    kept_tenants integer[], kept_collections integer[], kept_numbers bigint[], kept_versions integer[], kept_authors text[], kept_deleted boolean[],
    -- Documents that were gone and are there again, and whether it is kept what they were.
    back_tenants integer[], back_collections integer[], back_numbers bigint[], back_kept boolean[],
    alias_tenants integer[], alias_collections integer[], aliases uuid[], alias_numbers bigint[],
    gone_alias_tenants integer[], gone_aliases uuid[],
    -- Rows of edges.
    edge_tenants integer[], edge_collections integer[], edge_sources bigint[],
    edge_targets bigint[], edge_targets_2 bigint[], edge_targets_3 bigint[], edge_targets_4 bigint[],
    gone_row_tenants integer[], gone_row_targets bigint[], gone_row_sources bigint[],
    -- Single edges that go, each by which of the writes.
    gone_edge_tenants integer[], gone_edge_targets bigint[], gone_edge_sources bigint[], gone_edge_places integer[],
    kinds "char"[], tenants integer[], collections integer[], ids uuid[], versions integer[],
    -- Requests with their answers; those of each are up to its place in `answer_ends`.
    request_tenants integer[], request_keys uuid[], request_prints uuid[], answer_ends integer[],
    answer_kinds "char"[], answer_ids uuid[], answer_versions integer[],
    OUT reached bigint, OUT held bigint[]
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
    known bigint;
BEGIN
    IF cardinality(checked_numbers) > 0 THEN
        SELECT array_agg(c.number) INTO held
        FROM unnest(checked_tenants, checked_numbers, checked_places) AS c (tenant_id, number, place)
        CROSS JOIN LATERAL (SELECT FROM egret.document_reference AS e
            WHERE e.tenant_id = c.tenant_id AND e.target = c.number AND e.source <> c.number AND NOT EXISTS (
                SELECT FROM unnest(gone_edge_tenants, gone_edge_targets, gone_edge_sources, gone_edge_places) AS g (tenant_id, target, source, place)
                WHERE g.tenant_id = e.tenant_id AND g.target = e.target AND g.source = e.source AND g.place < c.place) LIMIT 1) AS e;
        IF held IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    IF is_relaxed THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF cardinality(kept_numbers) > 0 THEN
        INSERT INTO egret.document_version
            (tenant_id, collection_id, number, version, id, created_by, modified_at, modified_by, trace_id, replaced_at, replaced_by, is_deleted, body)
        SELECT d.tenant_id, d.collection_id, d.number, d.version, d.id, d.created_by, d.modified_at, d.modified_by, d.trace_id,
               now(), k.author, k.is_deleted, d.body
        FROM unnest(kept_tenants, kept_collections, kept_numbers, kept_authors, kept_deleted) AS k (tenant_id, collection_id, number, author, is_deleted)
        JOIN egret.document AS d USING (tenant_id, collection_id, number);
        DELETE FROM egret.document_version AS v
        USING unnest(kept_tenants, kept_collections, kept_numbers, kept_versions) AS k (tenant_id, collection_id, number, versions),
              egret.document AS d
        WHERE v.tenant_id = k.tenant_id AND v.collection_id = k.collection_id AND v.number = k.number
          AND d.tenant_id = k.tenant_id AND d.collection_id = k.collection_id AND d.number = k.number
          AND v.version <= d.version - k.versions AND NOT v.is_deleted;
    END IF;
    IF cardinality(back_numbers) > 0 THEN
        DELETE FROM egret.document_version AS v
        USING unnest(back_tenants, back_collections, back_numbers, back_kept) AS b (tenant_id, collection_id, number, is_kept)
        WHERE v.tenant_id = b.tenant_id AND v.collection_id = b.collection_id AND v.number = b.number AND v.is_deleted AND NOT b.is_kept;
        UPDATE egret.document_version AS v SET is_deleted = false
        FROM unnest(back_tenants, back_collections, back_numbers, back_kept) AS b (tenant_id, collection_id, number, is_kept)
        WHERE v.tenant_id = b.tenant_id AND v.collection_id = b.collection_id AND v.number = b.number AND v.is_deleted AND b.is_kept;
    END IF;
    IF cardinality(gone_row_targets) > 0 THEN
        DELETE FROM egret.document_edge AS e
        USING unnest(gone_row_tenants, gone_row_targets, gone_row_sources) AS g (tenant_id, target, source)
        WHERE e.tenant_id = g.tenant_id AND e.target = g.target AND e.source = g.source;
    END IF;
    IF cardinality(gone_aliases) > 0 THEN
        DELETE FROM egret.document_alias AS a
        USING unnest(gone_alias_tenants, gone_aliases) AS g (tenant_id, alias)
        WHERE a.tenant_id = g.tenant_id AND a.alias = g.alias;
    END IF;
    IF cardinality(gone_numbers) > 0 THEN
        DELETE FROM egret.document AS d
        USING unnest(gone_tenants, gone_collections, gone_numbers) AS g (tenant_id, collection_id, number)
        WHERE d.tenant_id = g.tenant_id AND d.collection_id = g.collection_id AND d.number = g.number;
    END IF;
    IF cardinality(changed_numbers) > 0 THEN
        UPDATE egret.document AS d
        SET body = c.body, version = d.version + 1, modified_at = now(), modified_by = c.author, trace_id = c.trace,
            targets = changed_targets[c.ended - c.targets + 1 : c.ended]
        FROM (SELECT x.*, x.ended - lag(x.ended, 1, 0) OVER (ORDER BY x.place) AS targets
              FROM unnest(changed_tenants, changed_collections, changed_numbers, changed_bodies, changed_authors, changed_traces, changed_ends)
                  WITH ORDINALITY AS x (tenant_id, collection_id, number, body, author, trace, ended, place)) AS c
        WHERE d.tenant_id = c.tenant_id AND d.collection_id = c.collection_id AND d.number = c.number;
    END IF;
    IF cardinality(new_numbers) > 0 THEN
        INSERT INTO egret.document
            (tenant_id, collection_id, number, id, version, modified_at, created_by, modified_by, trace_id, targets, body)
        SELECT x.tenant_id, x.collection_id, x.number, x.id, x.version, now(), x.creator, x.author, x.trace,
               new_targets[lag(x.ended, 1, 0) OVER (ORDER BY x.place) + 1 : x.ended], x.body
        FROM unnest(new_tenants, new_collections, new_numbers, new_ids, new_versions, new_bodies, new_creators, new_authors, new_traces, new_ends)
            WITH ORDINALITY AS x (tenant_id, collection_id, number, id, version, body, creator, author, trace, ended, place);
    END IF;
    IF cardinality(aliases) > 0 THEN
        INSERT INTO egret.document_alias (tenant_id, collection_id, alias, number)
        SELECT * FROM unnest(alias_tenants, alias_collections, aliases, alias_numbers);
    END IF;
    IF cardinality(edge_targets) > 0 THEN
        INSERT INTO egret.document_edge (tenant_id, collection_id, source, target, target_2, target_3, target_4)
        SELECT * FROM unnest(edge_tenants, edge_collections, edge_sources, edge_targets, edge_targets_2, edge_targets_3, edge_targets_4);
    END IF;
    IF cardinality(request_keys) > 0 THEN
        INSERT INTO egret.document_request (tenant_id, key, print, at, kinds, ids, versions)
        SELECT x.tenant_id, x.key, x.print, now(), answer_kinds[x.begun + 1 : x.ended], answer_ids[x.begun + 1 : x.ended],
               answer_versions[x.begun + 1 : x.ended]
        FROM (SELECT u.*, lag(u.ended, 1, 0) OVER (ORDER BY u.place) AS begun
              FROM unnest(request_tenants, request_keys, request_prints, answer_ends)
                  WITH ORDINALITY AS u (tenant_id, key, print, ended, place)) AS x;
    END IF;
    -- Last: whoever writes next waits for this row until this transaction has committed.
    SELECT o.number INTO known FROM egret.document_owner AS o WHERE o.epoch = document_write.epoch FOR UPDATE;
    IF known IS NULL THEN
        RAISE EXCEPTION 'another Egret writes documents here' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF number_max > known THEN
        -- For the next second as well: a number has milliseconds above its last 16 bits.
        UPDATE egret.document_owner AS o SET number = number_max + (1000::bigint << 16);
    END IF;
    -- Another statement: it sees what has committed before the row was locked.
    SELECT coalesce(max(f.position), 0) INTO reached FROM egret.document_feed AS f;
    IF cardinality(ids) > 0 THEN
        reached := reached + cardinality(ids);
        INSERT INTO egret.document_feed (position, epoch, group_id, is_relaxed, at, kinds, tenants, collections, ids, versions)
        VALUES (reached, epoch, group_id, is_relaxed, now(), kinds, tenants, collections, ids, versions);
    END IF;
END
$$;
