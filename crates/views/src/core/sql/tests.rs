//! The SQL of changes, for what changed.

use expect_test::{Expect, expect};

use super::*;
use crate::core::tree::TemporalPredicate;

fn source(rows: &str, changes: Option<&str>) -> SourceSql {
    SourceSql {
        rows: rows.to_owned(),
        expected_changes: 0,
        is_consolidated: false,
        changes: changes.map(str::to_owned),
        count_column: None,
    }
}

fn join(kind: JoinKind) -> Node {
    let scan = |table, id, name: &str| {
        Box::new(Node::Scan {
            source: Source::Table(table),
            columns: vec![(ColumnId(id), name.to_owned())],
        })
    };
    Node::Join {
        kind,
        left: scan(0, 1, "a"),
        right: scan(1, 2, "b"),
        condition: Expression::from_internal_text("\"egret$1\" = \"egret$2\""),
    }
}

fn check(kind: JoinKind, changed: [bool; 2], expected: Expect) {
    let sources = BTreeMap::from([
        (Source::Table(0), source("l", changed[0].then_some("dl"))),
        (Source::Table(1), source("r", changed[1].then_some("dr"))),
    ]);
    let blocks = Generator::new(&sources).changes(&join(kind));
    let selects: Vec<String> = blocks
        .iter()
        .map(|block| union_all(std::slice::from_ref(block), &[ColumnId(1), ColumnId(2)]))
        .collect();
    expected.assert_eq(&selects.join("\n"));
}

#[test]
fn a_join_of_which_one_side_changed_has_one_term() {
    check(JoinKind::Inner, [false, false], expect![[r#""#]]);
    check(
        JoinKind::Inner,
        [true, false],
        expect![[
            r#"SELECT t1."a" AS c1, t2."b" AS c2, t1.egret_weight AS egret_weight FROM dl AS t1, r AS t2 WHERE (t1."a" = t2."b")"#
        ]],
    );
    check(
        JoinKind::Inner,
        [false, true],
        expect![[
            r#"SELECT t2."a" AS c1, t3."b" AS c2, t3.egret_weight AS egret_weight FROM l AS t2, dr AS t3 WHERE (t2."a" = t3."b")"#
        ]],
    );
}

#[test]
fn a_join_with_changes_on_both_sides_reads_one_side_as_before() {
    check(
        JoinKind::Inner,
        [true, true],
        expect![[r#"
            SELECT t1."a" AS c1, t3."b" AS c2, t1.egret_weight AS egret_weight FROM dl AS t1, r AS t3 WHERE (t1."a" = t3."b")
            SELECT t1."a" AS c1, t2."b" AS c2, t1.egret_weight * t2.egret_weight * -1 AS egret_weight FROM dl AS t1, dr AS t2 WHERE (t1."a" = t2."b")
            SELECT t4."a" AS c1, t5."b" AS c2, t5.egret_weight AS egret_weight FROM l AS t4, dr AS t5 WHERE (t4."a" = t5."b")"#]],
    );
}

#[test]
fn an_outer_join_also_has_terms_for_unmatched_rows() {
    check(
        JoinKind::Left,
        [false, true],
        expect![[r#"
            SELECT t2."a" AS c1, t3."b" AS c2, t3.egret_weight AS egret_weight FROM l AS t2, dr AS t3 WHERE (t2."a" = t3."b")
            SELECT t15.c1 AS c1, t17.c2 AS c2, t15.egret_weight AS egret_weight FROM (SELECT c1, egret_rows * ((egret_now = 0)::integer - (egret_now - egret_more = 0)::integer) AS egret_weight FROM (SELECT t11.*, (SELECT coalesce(sum(t14.egret_weight), 0) FROM (SELECT t13."b" AS c2, 1::bigint AS egret_weight FROM r AS t13) AS t14 WHERE (t11.c1 = t14.c2)) AS egret_now FROM (SELECT any_value(t10.c1) AS c1, any_value(t10.egret_rows) AS egret_rows, coalesce(sum(t9.egret_weight), 0) AS egret_more FROM (SELECT t6.c1 AS c1, t6.egret_weight AS egret_rows, row_number() OVER () AS egret_row FROM (SELECT t5."a" AS c1, 1::bigint AS egret_weight FROM l AS t5) AS t6 WHERE EXISTS (SELECT FROM (SELECT t4."b" AS c2, t4.egret_weight AS egret_weight FROM dr AS t4) AS t7 WHERE (t6.c1 = t7.c2))) AS t10 LEFT JOIN (SELECT t8."b" AS c2, t8.egret_weight AS egret_weight FROM dr AS t8) AS t9 ON (t10.c1 = t9.c2) GROUP BY t10.egret_row) AS t11 OFFSET 0) AS t12) AS t15 LEFT JOIN (SELECT t16."b" AS c2, 1::bigint AS egret_weight FROM r AS t16) AS t17 ON false WHERE t15.egret_weight <> 0"#]],
    );
}

#[test]
fn the_passage_of_time_changes_rows_between_both_times() {
    let recent = Node::TemporalFilter {
        input: Box::new(Node::Scan {
            source: Source::Table(0),
            columns: vec![(ColumnId(1), "at".to_owned())],
        }),
        clock: ColumnId(9),
        condition: Expression::from_internal_text("\"egret$1\" > \"egret$9\""),
        predicates: vec![TemporalPredicate {
            value: Expression::column(ColumnId(1)),
            clock: Expression::column(ColumnId(9)),
        }],
    };
    let check = |changes: Option<&str>, expected: Expect| {
        let sources = BTreeMap::from([(Source::Table(0), source("l", changes))]);
        let mut generator = Generator::new(&sources);
        let all =
            [generator.rows(&recent), generator.rows_before(&recent), generator.changes(&recent)];
        let all = all.map(|blocks| union_all(&blocks, &[ColumnId(1)]));
        expected.assert_eq(&all.join("\n"));
    };
    check(
        None,
        expect![[r#"
        SELECT t1."at" AS c1, 1::bigint AS egret_weight FROM l AS t1 WHERE (t1."at" > now())
        SELECT t2."at" AS c1, 1::bigint AS egret_weight FROM l AS t2 WHERE (t2."at" > (SELECT clock FROM egret_frontier))
        SELECT t3."at" AS c1, (((t3."at" > now()) IS TRUE)::integer - ((t3."at" > (SELECT clock FROM egret_frontier)) IS TRUE)::integer)::bigint AS egret_weight FROM l AS t3 WHERE ((t3."at" >= least(now(), (SELECT clock FROM egret_frontier)) AND t3."at" <= greatest(now(), (SELECT clock FROM egret_frontier)))) AND ((t3."at" > now()) IS TRUE) <> ((t3."at" > (SELECT clock FROM egret_frontier)) IS TRUE)"#]],
    );
    check(
        Some("dl"),
        expect![[r#"
        SELECT t1."at" AS c1, 1::bigint AS egret_weight FROM l AS t1 WHERE (t1."at" > now())
        SELECT t2."at" AS c1, t2.egret_weight AS egret_weight FROM (SELECT "at", 1::bigint AS egret_weight FROM l AS t2 UNION ALL SELECT "at", -egret_weight AS egret_weight FROM dl AS t2) AS t2 WHERE (t2."at" > (SELECT clock FROM egret_frontier))
        SELECT t3."at" AS c1, t3.egret_weight AS egret_weight FROM dl AS t3 WHERE (t3."at" > (SELECT clock FROM egret_frontier)) UNION ALL SELECT t4."at" AS c1, (((t4."at" > now()) IS TRUE)::integer - ((t4."at" > (SELECT clock FROM egret_frontier)) IS TRUE)::integer)::bigint AS egret_weight FROM l AS t4 WHERE ((t4."at" >= least(now(), (SELECT clock FROM egret_frontier)) AND t4."at" <= greatest(now(), (SELECT clock FROM egret_frontier)))) AND ((t4."at" > now()) IS TRUE) <> ((t4."at" > (SELECT clock FROM egret_frontier)) IS TRUE)"#]],
    );
}
