//! Recursions beside other views, within limits, and within the transactions that write.

use super::*;

const GRAPH: &str = "CREATE TABLE e (a int, b int); CREATE TABLE s (a int);
    INSERT INTO e VALUES (1, 2), (2, 3), (3, 1), (3, 4), (4, 5), (5, 4); INSERT INTO s VALUES (1)";

const REACHED: &str = "WITH RECURSIVE r AS (SELECT a FROM s UNION SELECT e.b FROM r JOIN e ON e.a = r.a) SELECT a FROM r";

const CHANGES: [&str; 8] = [
    "DELETE FROM e WHERE (a, b) = (3, 4)",
    "INSERT INTO e VALUES (5, 6), (6, 4), (3, 4), (3, 4)",
    "DELETE FROM e WHERE (a, b) = (1, 2)",
    "INSERT INTO s VALUES (3), (4)",
    "UPDATE e SET b = a, a = b",
    "DELETE FROM s WHERE a = 1",
    "INSERT INTO e SELECT i, i + 1 FROM generate_series(10, 40) AS i; INSERT INTO s VALUES (12)",
    "UPDATE e SET b = 10 WHERE a = 40; DELETE FROM s WHERE a < 9",
];

#[tokio::test]
async fn views_over_a_recursion_are_told_what_came_and_what_went() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(GRAPH).await;
        let all = [
            ("reached", REACHED),
            ("sums", "SELECT count(*) AS n, sum(a) AS s FROM reached"),
            (
                "onward",
                "WITH RECURSIVE r AS (SELECT a, 1 AS n FROM reached UNION ALL SELECT a, n + 1 FROM r WHERE n < 3) SELECT a, n FROM r",
            ),
            ("ends", "SELECT e.a, o.n FROM onward AS o JOIN e ON e.b = o.a"),
        ];
        for (name, query) in all {
            rig.create(new_view(name, query)).await.unwrap();
        }
        for change in CHANGES {
            rig.execute(change).await;
            let done = rig.refresh("ends").await;
            assert_eq!(done.outcome, "incremental", "{change}: {done:?}");
            rig.verify(&["reached", "sums", "onward", "ends"]).await;
        }
        let explained = rig.views.explain(&view_ref("reached")).await.unwrap();
        let stage = &explained.stages[0];
        assert_eq!(
            stage.column_maintenance,
            ["rows of a recursion, each with the number of its derivations: updated \
                 incrementally"]
        );
        assert!(stage.operators.contains("scan of this stage"), "{}", stage.operators);
        rig.execute("TRUNCATE e").await;
        assert_eq!(rig.refresh("reached").await.outcome, "full");
        rig.verify(&["reached", "sums", "onward", "ends"]).await;
    }
}

#[tokio::test]
async fn what_goes_would_go_round_for_ever_in_a_circle_that_comes() {
    let config = ViewsConfig { delta_rows_max: 1_000, ..ViewsConfig::default() };
    let rig = Rig::with_config(18, config).await;
    rig.execute("CREATE TABLE s (a int); CREATE TABLE e (a int, b int); INSERT INTO s VALUES (1)")
        .await;
    let query = "WITH RECURSIVE r (a, d) AS (SELECT a, 0 FROM s UNION ALL SELECT e.b, r.d + 1 FROM r JOIN e ON e.a = r.a) SELECT a, d FROM r";
    rig.create(new_view("ways", query)).await.unwrap();
    rig.execute("INSERT INTO e VALUES (1, 2), (2, 3)").await;
    assert_eq!(rig.refresh("ways").await.outcome, "incremental");
    rig.execute("BEGIN; DELETE FROM s; INSERT INTO e VALUES (2, 1); COMMIT").await;
    assert_eq!(rig.refresh("ways").await.outcome, "full");
    rig.verify(&["ways"]).await;
    rig.execute("BEGIN; DELETE FROM e WHERE b = 1; INSERT INTO s VALUES (1); COMMIT").await;
    assert_eq!(rig.refresh("ways").await.outcome, "incremental");
    rig.verify(&["ways"]).await;
    // So it is with more than may be of rows that are there once.
    rig.create(new_view("reached", REACHED)).await.unwrap();
    rig.execute("INSERT INTO e SELECT i, i + 1 FROM generate_series(1, 2000) AS i").await;
    assert_eq!(rig.refresh("reached").await.outcome, "full");
    rig.verify(&["reached"]).await;
}

#[tokio::test]
async fn a_transaction_sees_what_comes_of_what_it_has_written() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(GRAPH).await;
        let ways = "WITH RECURSIVE r (a, d) AS (SELECT a, 0 FROM s UNION ALL SELECT e.b, r.d + 1 FROM r JOIN e ON e.a = r.a WHERE r.d < 5) SELECT a, d FROM r";
        for (name, query) in [("reached", REACHED), ("ways", ways)] {
            let made = NewView { mode: Mode::Immediate, schedule: None, ..new_view(name, query) };
            rig.create(made).await.unwrap();
        }
        rig.execute("BEGIN").await;
        for change in CHANGES {
            rig.execute(change).await;
            for (name, query) in [("reached", REACHED), ("ways", ways)] {
                let differing = format!(
                    "SELECT count(*) FROM ((TABLE {name} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL TABLE {name})) AS d"
                );
                assert_eq!(rig.query_number(&differing).await, 0, "{change}: {name}");
            }
        }
        rig.execute("COMMIT; BEGIN; DELETE FROM e; ROLLBACK; TRUNCATE s").await;
        rig.verify(&["reached", "ways"]).await;
        assert_eq!(rig.refresh("reached").await.outcome, "nothing");
    }
}
