//! What cannot be kept fresh is refused by name, and nothing is left of it.

use egret_base::CodedError;
use egret_postgres_test::TestDatabase;
use egret_views::testing::{create, install};

/// Queries with subqueries in expressions, and what they are refused for.
const SUBQUERIES: [(&str, &str); 4] = [
    (
        "SELECT a FROM t WHERE EXISTS (SELECT FROM named AS n WHERE n.a > random())",
        "pg_catalog.random",
    ),
    (
        "SELECT a FROM t WHERE a IN (SELECT n.a + (random() * 2)::int FROM named AS n)",
        "pg_catalog.random",
    ),
    (
        "SELECT t.a FROM t WHERE EXISTS (SELECT FROM named AS n GROUP BY ROLLUP (n.a) HAVING n.a < t.a)",
        "GROUPING SETS in a correlated subquery",
    ),
    (
        "SELECT t.a FROM t WHERE EXISTS (SELECT FROM named AS n FULL JOIN t AS o ON n.a < t.a AND o.a = n.a)",
        "outer column",
    ),
];

/// Queries of other shapes.
const SHAPES: &[(&str, &str)] = &[
    ("SELECT a, b > now() AS is_new FROM t", "`now()` at position"),
    ("SELECT a FROM t WHERE b > clock_timestamp()", "pg_catalog.clock_timestamp"),
    ("SELECT a FROM t WHERE now() - b < '1 hour'", "`now()` at position"),
    ("SELECT a FROM t WHERE age(b) < '1 hour'", "pg_catalog.age"),
    ("SELECT a FROM t WHERE b::text > now()::text", "`now()` at position"),
    (
        "SELECT a FROM t WHERE b > (SELECT max(b) FROM t) - (now() - '2013-01-01')",
        "`now()` at position",
    ),
    (
        "SELECT a FROM t WHERE to_char(b, 'MM') = to_char(CURRENT_DATE, 'MM')",
        "CURRENT_DATE at position",
    ),
    ("SELECT max(b) AS m FROM t HAVING max(b) > LOCALTIMESTAMP", "LOCALTIMESTAMP"),
    ("SELECT t.a FROM t LEFT JOIN named AS n ON n.a = t.a AND t.b > now()", "`now()` at position"),
    ("SELECT count(*) FILTER (WHERE b > now()) AS n FROM t", "`now()` at position"),
    ("SELECT a FROM t WHERE a::text = CURRENT_USER", "CURRENT_USER"),
    ("SELECT a FROM t ORDER BY a LIMIT 2.5", "LIMIT by an expression"),
    ("SELECT a, (jsonb_each('{}'::jsonb)).key AS k FROM t", "a function that returns rows"),
    (
        "WITH RECURSIVE r AS (SELECT a FROM t UNION SELECT max(r.a) OVER () FROM r) SELECT a FROM r",
        "several of its own rows",
    ),
    (
        "WITH RECURSIVE r AS (SELECT a FROM t UNION (SELECT r.a FROM r UNION ALL SELECT n.a FROM named AS n)) SELECT a FROM r",
        "several of its own rows",
    ),
    (
        "WITH RECURSIVE r AS (SELECT a FROM t UNION ALL SELECT r.a + 1 FROM r WHERE r.a < 9) CYCLE a SET is_cycle USING path SELECT a FROM r",
        "CYCLE at position",
    ),
    (
        "WITH RECURSIVE r AS (SELECT a FROM t UNION ALL SELECT r.a + 1 FROM r WHERE r.a < 9) SEARCH BREADTH FIRST BY a SET place SELECT a FROM r",
        "SEARCH at position",
    ),
];

/// What would be another value here than where it stands.
const ELSEWHERE: &[(&str, &str)] = &[
    ("SELECT t.a, (SELECT sum(t.a)) AS s FROM t GROUP BY t.a", "an aggregate of outer rows"),
    (
        "SELECT t.b, ARRAY(SELECT unnest(array_agg(t.a)) ORDER BY 1) AS a FROM t GROUP BY t.b",
        "an aggregate of outer rows",
    ),
    ("SELECT (SELECT sum(t.a)) AS s FROM t", "an aggregate of outer rows"),
    ("SELECT c FROM spelled", "IS DISTINCT FROM on a type with its own equality operator"),
];

#[tokio::test]
async fn what_is_not_covered_is_refused_by_name() {
    let database = TestDatabase::create(18).await;
    let mut client = database.connect().await;
    install(&mut client).await.unwrap();
    client
        .batch_execute(
            "SET search_path = public;
             CREATE TABLE t (a int PRIMARY KEY, b timestamptz, j json);
             CREATE EXTENSION citext; CREATE TABLE lettered (a int PRIMARY KEY, l citext);
             CREATE VIEW spelled AS SELECT l IS DISTINCT FROM 'x' AS c FROM lettered;
             CREATE TABLE guarded (a int); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
             CREATE TABLE parts (a int) PARTITION BY RANGE (a);
             CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (9);
             CREATE TABLE named (a int PRIMARY KEY, egret_weight int, egret_xid int);
             CREATE TABLE base (a int); CREATE TABLE child () INHERITS (base);
             CREATE MATERIALIZED VIEW kept AS SELECT a FROM t;
             CREATE FUNCTION reads() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM t';
             CREATE VIEW over_guarded AS SELECT a FROM guarded;
             CREATE FUNCTION unsteady(float8, int) RETURNS float8 LANGUAGE sql VOLATILE AS 'SELECT $1 + random()';
             CREATE AGGREGATE shaken(int) (SFUNC = unsteady, STYPE = float8, INITCOND = '0')",
        )
        .await
        .unwrap();
    let refused = [
        ("SELECT a, now() FROM t", "`now()` at position"),
        ("SELECT a FROM t GROUP BY a, CURRENT_DATE", "CURRENT_DATE"),
        ("SELECT a, random() FROM t", "pg_catalog.random"),
        ("SELECT a, reads() FROM t", "public.reads"),
        ("SELECT shaken(a) AS s FROM t", "public.unsteady"),
        ("SELECT a FROM guarded", "row level security"),
        ("SELECT a FROM over_guarded", "row level security"),
        ("SELECT a FROM part", "the partition"),
        ("SELECT a FROM base", "is inherited"),
        ("SELECT a FROM kept", "materialized view"),
        ("SELECT relname FROM pg_class", "system table"),
        ("SELECT a, egret_weight FROM named", "`egret_weight`"),
        ("SELECT count(*) AS n FROM named WHERE egret_xid > 1", "`egret_xid`"),
        ("SELECT a FROM t LIMIT (2 + 2)", "LIMIT by an expression"),
        ("SELECT a FROM t; DROP TABLE t", "second statement"),
        ("SELECT nothing FROM t", "nothing"),
        ("DELETE FROM t", "not a query cannot be in a view"),
    ];
    for (query, named) in refused.iter().chain(&SUBQUERIES).chain(SHAPES).chain(ELSEWHERE) {
        let error = create(&mut client, "public", "v", query)
            .await
            .err()
            .unwrap_or_else(|| panic!("{query} is refused"));
        let said = error.to_string();
        assert!(said.contains(named), "{query}: {said} ({})", error.code());
    }
    let sql = "SELECT count(*) FROM pg_class WHERE relnamespace = 'egret'::regnamespace AND relname LIKE '%\\_1\\_%' OR relname LIKE 'changes%'";
    let left: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
    let sql = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal";
    let triggers: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(triggers, 0);
}
