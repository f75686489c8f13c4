//! Sums that cannot be taken back: of floating point numbers, and of what is no number.

use crate::world::{World, query_text};

const QUERY: &str =
    "SELECT c, sum(f) AS s, avg(f) AS a, sum(r) AS q, stddev_pop(f) AS d FROM t GROUP BY c";

/// Small numbers beside which large ones come and go, many times. What is left can be added up in
/// any order without rounding, so that the view is the query to the last bit; a sum from which the
/// large ones were taken away again would have lost the small ones.
#[tokio::test]
async fn sums_of_floats_do_not_drift_while_large_values_come_and_go() {
    let mut world = World::new(
        18,
        "CREATE TABLE t (c text, f float8, r real); INSERT INTO t VALUES ('a', 0.25, 0.5), ('a', 0.5, 0.25), ('b', 0.125, 1)",
    )
    .await;
    world.view(QUERY).await;
    world.view("SELECT sum(f) AS s, avg(r) AS a, count(f) AS n FROM t").await;
    for round in 0..25 {
        let large = format!(
            "INSERT INTO t VALUES ('a', 1e{0}, 1e{0}), ('b', -3e{0}, 7e-{0}), ('c', 1e{0}, 1)",
            16 + round % 10
        );
        world.execute(&large).await;
        for view in &world.views {
            let done = view.refresh(&mut world.client).await;
            assert!(!done.is_full && done.changed > 0);
        }
        // While they are there SQL leaves the order of addition open, and with it the last bits.
        let close = format!(
            "SELECT bool_and(abs(v.s - q.s) <= 1e-12 * abs(q.s) AND abs(v.a - q.a) <= 1e-12 * abs(q.a)) FROM v1 AS v JOIN ({QUERY}) AS q USING (c)"
        );
        assert_eq!(world.text(&close).await.as_deref(), Some("true"));
        world.apply_change("DELETE FROM t WHERE abs(f) > 1").await;
    }
    let sum = query_text(&world.client, "SELECT s FROM v2").await;
    assert_eq!(sum.as_deref(), Some("0.875"));
}

#[tokio::test]
async fn infinities_and_what_is_no_number_go_away_again() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE TABLE t (c text, f float8, r real, n numeric, m numeric(10,2)); INSERT INTO t VALUES ('a', 1, 1, 1, 1), ('b', 2, 2, 2, 2)",
        )
        .await;
        for column in ["f", "r", "n", "m"] {
            world.view(&format!(
                "SELECT c, sum({column}) AS s, avg({column}) AS a, max({column}) AS m, sum({column}) FILTER (WHERE c = 'a') AS o FROM t GROUP BY c"
            )).await;
            world.view(&format!("SELECT sum({column}) AS s, avg({column}) AS a FROM t")).await;
        }
        for change in [
            "INSERT INTO t VALUES ('a', 'NaN', 'NaN', 'NaN', 'NaN')",
            "UPDATE t SET f = f + 1, m = m + 1, n = n + 1",
            "INSERT INTO t VALUES ('b', 'inf', '-inf', 'inf', 'NaN'), ('b', '-inf', 'inf', '-inf', NULL)",
            "UPDATE t SET c = 'b' WHERE m = 'NaN'",
            "DELETE FROM t WHERE f = '-inf'",
            "DELETE FROM t WHERE f IN ('inf', 'NaN') OR m = 'NaN'",
            "INSERT INTO t VALUES ('c', 'NaN', 'NaN', 'NaN', 'NaN')",
            "UPDATE t SET f = 5, r = 5, n = 5, m = 5 WHERE c = 'c'",
            "UPDATE t SET f = NULL, r = NULL, n = NULL, m = NULL WHERE c = 'c'",
        ] {
            world.apply_change(change).await;
        }
    }
}

/// Digits that a session does not show are values all the same.
#[tokio::test]
async fn floats_are_told_apart_whatever_a_session_prints_of_them() {
    let mut world = World::new(
        18,
        "CREATE TABLE t (id int, f float8); INSERT INTO t VALUES (1, 0.1), (2, 0.30000000000000004), (2, 0.1)",
    )
    .await;
    world.execute("SET extra_float_digits = -5").await;
    for query in [
        "SELECT id, f FROM t",
        "SELECT id, max(f) AS m FROM t GROUP BY id",
        "SELECT m, count(*) AS n FROM (SELECT id, max(f) AS m FROM t GROUP BY id) AS g GROUP BY m",
    ] {
        world.view(query).await;
    }
    let exact = world.database.connect().await;
    for change in [
        "UPDATE t SET f = 0.3 WHERE id = 2 AND f > 0.2",
        "UPDATE t SET f = 0.10000000000000002 WHERE id = 1",
        "DELETE FROM t WHERE f = 0.1",
    ] {
        assert!(world.apply_change(change).await[0] > 0, "{change}");
        for view in &world.views {
            view.assert_matches_query(&exact).await;
        }
    }
}
