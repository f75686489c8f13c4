//! Queries as the server prints them, and what is refused.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::facts::{Relation, RelationKind};
use super::*;
use crate::core::prune::prune;
use crate::core::sql::{Generator, SourceSql};

fn facts() -> Facts {
    let relation = |columns: &[&str], kind| Relation {
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        virtual_columns: BTreeMap::new(),
        not_null: BTreeSet::new(),
        exact: BTreeSet::new(),
        kind,
        has_bare_equality: false,
    };
    let named = |name: &str| ("public".to_owned(), name.to_owned());
    let view = RelationKind::View("SELECT t.a AS x FROM public.t WHERE t.b > 1".to_owned());
    let marks = RelationKind::View("SELECT '\"egret$9\"'::text AS m FROM public.t".to_owned());
    let computed = ("m".to_owned(), "'\"egret$9\"'::text".to_owned());
    let computes = Relation {
        virtual_columns: BTreeMap::from([computed]),
        ..relation(&["a", "m"], RelationKind::Table(2))
    };
    Facts {
        relations: BTreeMap::from([
            (named("t"), relation(&["a", "b"], RelationKind::Table(0))),
            (named("u"), relation(&["a", "c"], RelationKind::Table(1))),
            (named("v"), relation(&["y"], view)),
            (named("marks"), relation(&["m"], marks)),
            (named("computes"), computes),
        ]),
        aggregates: ["count", "sum", "max"].map(|name| (None, name.to_owned())).into(),
        set_functions: [(None, "unnest".to_owned())].into(),
        ..Facts::default()
    }
}

fn check(sql: &str, expected: Expect) {
    let shown = match analyse(sql, &facts()) {
        Err(refusal) => refusal.to_string(),
        Ok(mut plan) => {
            prune(&mut plan, &[]);
            let stages = plan.stages.iter().map(|stage| format!("{:?}", stage.contents));
            let names: Vec<String> = plan
                .presentation
                .columns
                .iter()
                .map(|(name, id)| format!("{name}={}", id.0))
                .collect();
            format!("{}\n{}", stages.collect::<Vec<_>>().join("\n"), names.join(" "))
        }
    };
    expected.assert_eq(&shown);
}

#[test]
fn rows_of_a_view_are_those_of_its_query() {
    check(
        "SELECT y FROM public.v",
        expect![[r#"
        Rows { columns: [ColumnId(1)] }
        y=1"#]],
    );
    check(
        "SELECT t.a + 1 AS z, u.c FROM public.t JOIN public.u USING (a)",
        expect![[r#"
            Rows { columns: [ColumnId(5), ColumnId(4)] }
            z=5 c=4"#]],
    );
}

#[test]
fn groups_have_keys_and_aggregates_once() {
    check(
        "SELECT upper(t.b) AS k, sum(t.a) AS s, sum(t.a) + count(*) AS m FROM public.t GROUP BY upper(t.b) HAVING count(*) > 1",
        expect![[r#"
            Groups { keys: [(ColumnId(3), Expression { pieces: [Text("upper("), Column(ColumnId(2)), Text(")")] })], aggregates: [Aggregate { column: ColumnId(4), call: Expression { pieces: [Text("sum("), Column(ColumnId(1)), Text(")")] }, function: Some("sum"), argument: Some(Expression { pieces: [Column(ColumnId(1))] }), filter: None, empty_value: Some("NULL") }, Aggregate { column: ColumnId(5), call: Expression { pieces: [Text("count(*)")] }, function: Some("count"), argument: None, filter: None, empty_value: Some("0") }] }
            k=3 s=4 m=6"#]],
    );
    check(
        "SELECT DISTINCT b FROM public.t",
        expect![[r#"
        Groups { keys: [(ColumnId(3), Expression { pieces: [Column(ColumnId(2))] })], aggregates: [] }
        b=3"#]],
    );
}

#[test]
fn an_unsupported_construct_is_named() {
    let queries = [
        "SELECT a FROM public.t LIMIT 2 + 2",
        "SELECT a, row_number() OVER w FROM public.t",
        "SELECT a FROM public.t WHERE EXISTS (SELECT FROM public.u)",
        "SELECT ctid FROM public.t",
        "SELECT t FROM public.t",
        "SELECT a FROM generate_series(1, 2) AS a",
        "SELECT a FROM public.t TABLESAMPLE system (1)",
        "SELECT a FROM public.t FOR UPDATE",
        "SELECT a FROM public.nothing",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT DISTINCT r.n FROM r) SELECT r.n FROM r",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT r.n FROM r) CYCLE n SET c USING p SELECT r.n FROM r",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT r.n FROM r) SEARCH DEPTH FIRST BY n SET o SELECT r.n FROM r",
        "DELETE FROM public.t",
        "SELECT 1; SELECT 2",
        "SELECT \"egret$1\" FROM public.t",
        "SELECT m FROM public.marks",
        "SELECT m FROM public.computes",
        "SELECT FROM FROM",
    ];
    let said: Vec<String> = queries
        .map(|sql| analyse(sql, &facts()).err().map(|refusal| refusal.to_string()))
        .map(Option::unwrap_or_default)
        .into();
    expect![[r#"
        LIMIT by an expression is not maintained incrementally: write the number
        the window `w` at position 29 is not maintained incrementally: define it

        the system column `ctid` at position 8 is not maintained incrementally: leave it out
        the whole row or outer column `t` at position 8 is not maintained incrementally: name the columns
        a function in FROM is not maintained incrementally: name its columns: `AS f (a, b)`
        TABLESAMPLE at position 36 is not maintained incrementally: it returns other rows each time
        FOR UPDATE or FOR SHARE is not maintained incrementally: leave it out: a view only reads
        the relation `public.nothing` at position 15 is not maintained incrementally: only tables and views are supported
        WITH RECURSIVE whose recursive term combines several of its own rows at position 16 is not maintained incrementally: leave DISTINCT, GROUP BY, UNION and window functions out of it, or use mode full
        CYCLE at position 63 is not maintained incrementally: collect the keys of visited rows in an array column, or use mode full
        SEARCH at position 63 is not maintained incrementally: collect the keys of visited rows in an array column, or use mode full
        a statement that is not a query cannot be in a view: give a SELECT
        a second statement cannot be in a view: give exactly one query
        a name that begins with `egret$` is not maintained incrementally: use other names: these are reserved
        a name that begins with `egret$` is not maintained incrementally: use other names: these are reserved
        a name that begins with `egret$` is not maintained incrementally: use other names: these are reserved
        this text cannot be in a view: Invalid statement: syntax error at or near "FROM""#]].assert_eq(&said.join("\n"));
}

const WORDS: [&str; 64] = [
    "SELECT",
    "FROM",
    "WHERE",
    "JOIN",
    "LEFT",
    "FULL",
    "CROSS",
    "NATURAL",
    "ON",
    "USING",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT",
    "UNION",
    "UNION ALL",
    "EXCEPT",
    "DISTINCT",
    "WITH",
    "RECURSIVE",
    "AS",
    "LATERAL",
    "EXISTS",
    "IN",
    "CASE",
    "WHEN",
    "THEN",
    "END",
    "FILTER",
    "OVER",
    "ROLLUP",
    "FOR UPDATE",
    "NULL",
    "IS",
    "NOT",
    "AND",
    "public.t",
    "public.u",
    "public.v",
    "public.t.a",
    "t",
    "u",
    "v",
    "a",
    "b",
    "c",
    "x",
    "y",
    "*",
    "t.*",
    "count(*)",
    "sum(a)",
    "max(t.a)",
    "generate_series(1, 2)",
    "(",
    ")",
    ",",
    ";",
    "=",
    "+",
    "::integer",
    "'é'",
    "\"egret$1\"",
    "1",
];

/// Queries to start from.
const QUERIES: [&str; 7] = [
    "SELECT t.a + 1 AS z , u.c FROM public.t JOIN public.u USING ( a ) WHERE t.b > 1",
    "SELECT x.a , y.c FROM public.t AS x LEFT JOIN public.u AS y ON x.a = y.a AND x.b > 2",
    "SELECT b , count(*) , sum(a) FILTER ( WHERE a > 1 ) FROM public.t GROUP BY b HAVING count(*) > 1",
    "SELECT DISTINCT y FROM public.v UNION ALL SELECT c FROM public.u",
    "WITH w AS ( SELECT a , b FROM public.t ) SELECT w.a , v.y FROM w FULL JOIN public.v ON w.a = v.y",
    "SELECT s.n FROM ( SELECT a , max(b) AS n FROM public.t GROUP BY a ) AS s NATURAL JOIN public.u",
    "SELECT CASE WHEN a IS NULL THEN 1 END FROM public.t UNION SELECT a FROM public.u",
];

fn mutated() -> impl Strategy<Value = String> {
    let change = (0..64_usize, 0..40_usize, 0..4_u8);
    let changes = proptest::collection::vec(change, 1..5);
    (0..QUERIES.len(), changes).prop_map(|(query, changes)| {
        let mut words: Vec<&str> = QUERIES[query].split(' ').collect();
        for (word, at, how) in changes {
            let at = at % words.len();
            match how {
                0 => words.insert(at, WORDS[word]),
                1 => words[at] = WORDS[word],
                2 if words.len() > 1 => _ = words.remove(at),
                _ => words.swap(at, 0),
            }
        }
        words.join(" ")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_is_written_is_accepted_or_refused(sql in mutated()) {
        if let Ok(mut plan) = analyse(&sql, &facts()) {
            prune(&mut plan, &[]);
            let mut sources = BTreeMap::new();
            for source in plan.stages.iter().flat_map(|stage| stage.input.sources()) {
                let changes = Some("changes".to_owned());
                let sql = SourceSql { rows: "t".to_owned(), changes, expected_changes: 0, is_consolidated: false, count_column: None };
                sources.insert(source, sql);
            }
            for stage in &plan.stages {
                let mut generator = Generator::new(&sources);
                let changed = generator.changes(&stage.input);
                prop_assert_eq!(changed.is_empty(), stage.input.sources().is_empty());
                prop_assert!(!generator.rows(&stage.input).is_empty());
            }
        }
    }

    #[test]
    fn no_text_is_too_strange_to_be_refused(sql in "\\PC{0,60}") {
        _ = analyse(&sql, &facts());
    }
}

/// Wherever the clock stands it is seen, or what shows it would be stale.
#[test]
fn the_clock_is_supported_in_where_only() {
    let at = "\"t\".a > (now() - 'PT1H'::interval)";
    for sql in [
        "SELECT a FROM public.t WHERE $",
        "SELECT a FROM public.t WHERE (b = 1) OR (NOT ($))",
        "SELECT t.a FROM public.t JOIN public.u ON (t.a = u.a) AND ($)",
        "SELECT a FROM (SELECT a FROM public.t WHERE $) AS x",
        "SELECT u.a FROM public.u WHERE EXISTS (SELECT FROM public.t WHERE (t.b = u.a) AND ($))",
        "SELECT u.a, (SELECT max(t.b) FROM public.t WHERE (t.a = u.a) AND ($)) AS m FROM public.u",
        "SELECT a FROM public.t WHERE t.a = CURRENT_DATE",
        "SELECT a FROM public.t WHERE CURRENT_TIMESTAMP(3) <> t.a",
    ] {
        let plan = analyse(&sql.replace('$', at), &facts())
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(plan.stages.iter().any(|stage| stage.input.has_clock()), "{sql}");
        assert!(!format!("{plan:?}").contains("now"), "{sql}");
    }
    for sql in [
        "SELECT $ AS a FROM public.t",
        "SELECT count(*) FILTER (WHERE $) AS n FROM public.t",
        "SELECT max(now()) AS n FROM public.t",
        "SELECT a FROM public.t GROUP BY a, now()",
        "SELECT a FROM public.t GROUP BY a HAVING max(t.b) > now()",
        "SELECT a FROM public.t ORDER BY (now() - t.a)",
        "SELECT a FROM public.t ORDER BY a LIMIT extract(day FROM now())",
        "SELECT DISTINCT ON (now() - t.a) a FROM public.t",
        "SELECT count(*) OVER (PARTITION BY CURRENT_DATE) AS n FROM public.t",
        "SELECT t.a FROM public.t LEFT JOIN public.u ON $",
        "SELECT t.a FROM public.t, LATERAL unnest(ARRAY[now()]) AS f (x)",
        "SELECT unnest(ARRAY[now()]) AS x FROM public.t",
        "SELECT x.a FROM (VALUES (now())) AS x (a)",
        "VALUES (LOCALTIME)",
        "SELECT a FROM public.t WHERE now() IN (SELECT u.a FROM public.u)",
        "SELECT a FROM public.t WHERE EXISTS (SELECT now() FROM public.u GROUP BY u.a)",
        "SELECT (SELECT max(now() - u.a) FROM public.u) AS m FROM public.t",
        "SELECT a FROM public.t WHERE (now() - t.a) < 'PT1H'::interval",
        "SELECT a FROM public.t WHERE t.a > NULLIF(now(), t.b)",
        "SELECT a FROM public.t WHERE t.a = ANY (ARRAY[CURRENT_DATE])",
        "SELECT a FROM public.t WHERE t.a OPERATOR(public.>) now()",
        "SELECT a FROM public.t WHERE t.a > (now())::public.odd",
        "SELECT a FROM public.t WHERE t.a > (now())::text",
        "SELECT a FROM public.t WHERE CASE WHEN t.b = 1 THEN now() ELSE t.a END = t.a",
    ] {
        let refusal = analyse(&sql.replace('$', at), &facts())
            .err()
            .unwrap_or_else(|| panic!("{sql} is refused"));
        let limit = sql.contains("LIMIT");
        assert!(limit || refusal.advice.contains("mode full"), "{sql}: {refusal}");
    }
}
