//! Views that are kept fresh within the transactions that write.

use egret_postgres::tokio_postgres::error::SqlState;

use super::*;
use crate::world::wait_until_blocked;

pub(super) fn new_immediate_view(name: &str, query: &str) -> NewView {
    NewView { mode: Mode::Immediate, schedule: None, ..new_view(name, query) }
}

/// Queries of the shapes that there are, over the tables of [`TABLES`].
const QUERIES: [(&str, &str); 7] = [
    ("low", "SELECT id, g, v * 2 AS w FROM t WHERE v < 50"),
    ("sums", "SELECT g, count(*) AS n, sum(v) AS s, max(v) AS m FROM t GROUP BY g"),
    ("total", "SELECT count(*) AS n, avg(v) AS a FROM t"),
    ("named", "SELECT t.id, u.name, t.v FROM t LEFT JOIN u ON u.g = t.g"),
    (
        "names",
        "SELECT u.name, sum(t.v) AS s FROM t JOIN u USING (g) GROUP BY u.name HAVING count(*) > 1",
    ),
    ("pairs", "SELECT a.id, b.id AS other FROM t AS a JOIN t AS b ON a.v = b.g"),
    ("kinds", "SELECT DISTINCT g, v % 3 AS r FROM t"),
];

impl Rig {
    async fn with_all_views(version: u32) -> Self {
        let rig = Self::new(version).await;
        rig.execute(TABLES).await;
        for (name, query) in QUERIES {
            rig.create(new_immediate_view(name, query)).await.unwrap();
        }
        rig
    }

    /// What a session sees in each view is what it sees in its query.
    async fn assert_views_match(&self, client: &Client, context: &str) {
        for (name, query) in QUERIES {
            let sql = format!(
                "SELECT sum(w), r::text FROM (SELECT r::text AS r, 1 AS w FROM public.{name} AS r UNION ALL \
                 SELECT r::text, -1 FROM ({query}) AS r) AS both_sides GROUP BY r HAVING sum(w) <> 0 ORDER BY 2 LIMIT 9"
            );
            let found = client.query(&sql, &[]).await.unwrap();
            let wrong: Vec<(i64, String)> =
                found.iter().map(|row| (row.get(0), row.get(1))).collect();
            assert!(wrong.is_empty(), "{context}: {name}: {wrong:?}");
        }
        let failed = client
            .query("SELECT name::text, reason FROM egret.view WHERE snapshot IS NULL", &[])
            .await
            .unwrap();
        let failed: Vec<(String, Option<String>)> =
            failed.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert!(failed.is_empty(), "{context}: {failed:?}");
    }

    async fn execute_and_compare(&self, statement: &str) {
        self.execute(statement).await;
        self.assert_views_match(&self.client, statement).await;
    }
}

#[tokio::test]
async fn a_transaction_sees_in_views_what_it_has_written() {
    for version in [18, 15] {
        let rig = Rig::with_all_views(version).await;
        rig.execute("BEGIN").await;
        for statement in [
            "INSERT INTO t VALUES (200, 1, 1), (201, 9, 9), (202, NULL, NULL)",
            "UPDATE t SET v = v + 1 WHERE id < 20",
            "SAVEPOINT before",
            "UPDATE t SET g = g + 1, id = -id",
            "DELETE FROM u WHERE g > 3",
            "ROLLBACK TO before",
            "DELETE FROM t WHERE v = (SELECT max(v) FROM t)",
            "INSERT INTO u VALUES (9, 'nine') ON CONFLICT DO NOTHING",
            "INSERT INTO u VALUES (9, 'NINE'), (10, 'ten') ON CONFLICT (g) DO UPDATE SET name = excluded.name",
            "MERGE INTO t USING u ON t.id = u.g WHEN MATCHED AND u.g = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 0 \
             WHEN NOT MATCHED THEN INSERT VALUES (u.g, u.g, u.g)",
            "UPDATE t SET v = v WHERE false",
            "INSERT INTO t SELECT i, i % 7, i FROM generate_series(1000, 5000) AS i",
            "DELETE FROM t WHERE id > 4000",
            "TRUNCATE u",
            "COMMIT",
        ] {
            rig.execute_and_compare(statement).await;
        }
        let names: Vec<&str> = QUERIES.iter().map(|(name, _)| *name).collect();
        rig.verify(&names).await;
        assert_eq!(rig.refresh("sums").await.outcome, "nothing");
        let report = rig.views.show(&view_ref("sums")).await.unwrap();
        assert!(report.is_current);
    }
}

#[tokio::test]
async fn statements_that_change_several_tables_are_counted_once() {
    for version in [18, 15] {
        let rig = Rig::with_all_views(version).await;
        rig.execute(
            "ALTER TABLE t ADD FOREIGN KEY (g) REFERENCES u ON DELETE CASCADE ON UPDATE CASCADE;
             CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
             IF NEW.id BETWEEN 300 AND 303 THEN INSERT INTO t VALUES (NEW.id + 1, NEW.g, NEW.v); UPDATE u SET name = name || '+' WHERE g = NEW.g; END IF;
             IF NEW.id = 304 THEN DELETE FROM t WHERE id = 300; END IF;
             RETURN NULL;
             END $$;
             CREATE TRIGGER more AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION more()",
        )
        .await;
        for statement in [
            "WITH one AS (INSERT INTO u VALUES (20, 'twenty') RETURNING g), two AS (UPDATE u SET name = 'x' WHERE g = 2), \
             three AS (DELETE FROM t WHERE id = 7) INSERT INTO t SELECT 500, NULL, 20 FROM one",
            "WITH gone AS (DELETE FROM t WHERE g = 4 RETURNING *) UPDATE u SET g = 40 WHERE g = 4",
            "UPDATE u SET g = g + 100 WHERE g IN (1, 2)",
            "DELETE FROM u WHERE g = 101",
            "DELETE FROM u WHERE g = 55",
            "INSERT INTO t VALUES (300, 3, 3), (310, 3, 4)",
            "TRUNCATE u CASCADE",
        ] {
            rig.execute_and_compare(statement).await;
        }
        rig.execute("DO $$ BEGIN INSERT INTO u VALUES (1, 'one'); BEGIN INSERT INTO t VALUES (1, 1, 1), (1, 1, 1); EXCEPTION WHEN unique_violation THEN NULL; END; INSERT INTO t VALUES (2, 1, 1); END $$")
            .await;
        rig.assert_views_match(&rig.client, "a block that fails").await;
    }
}

/// Each would see only its own side of the join.
#[tokio::test]
async fn of_two_writers_on_both_sides_of_a_join_one_waits() {
    for version in [18, 15] {
        let rig = Rig::with_all_views(version).await;
        let (one, other) = (rig.database.connect().await, rig.database.connect().await);
        one.batch_execute("SET search_path = public; BEGIN; INSERT INTO t VALUES (700, 70, 70)")
            .await
            .unwrap();
        rig.assert_views_match(&one, "one").await;
        let waits = tokio::spawn(async move {
            let sql = "SET search_path = public; BEGIN; INSERT INTO u VALUES (70, 'seventy')";
            other.batch_execute(sql).await.unwrap();
            other
        });
        wait_until_blocked(&rig.client).await;
        one.batch_execute("UPDATE t SET v = 71 WHERE id = 700; COMMIT").await.unwrap();
        let other = waits.await.unwrap();
        rig.assert_views_match(&other, "other").await;
        let seen = "SELECT count(*) FROM named WHERE name = 'seventy' AND v = 71";
        assert_eq!(other.query_one(seen, &[]).await.unwrap().get::<_, i64>(0), 1);
        other.batch_execute("COMMIT").await.unwrap();
        rig.assert_views_match(&rig.client, "both").await;
        assert_eq!(rig.query_number(seen).await, 1);
    }
}

#[tokio::test]
async fn a_writer_that_would_not_see_what_others_wrote_is_refused() {
    let rig = Rig::with_all_views(18).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let sql = format!("BEGIN ISOLATION LEVEL {level}; DELETE FROM t");
        let error = rig.client.batch_execute(&sql).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::FEATURE_NOT_SUPPORTED));
        let message = error.as_db_error().unwrap().message().to_owned();
        assert!(message.contains("READ COMMITTED"), "{message}");
        rig.execute("ROLLBACK").await;
    }
    rig.assert_views_match(&rig.client, "refused").await;
}

/// What is wrong with a view is not the writer's business.
#[tokio::test]
async fn no_write_fails_because_of_a_view_and_it_is_computed_anew() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(new_immediate_view("ratios", "SELECT g, sum(100 / v) AS s FROM t GROUP BY g"))
        .await
        .unwrap();
    rig.create(new_immediate_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g"))
        .await
        .unwrap();
    rig.execute("BEGIN; INSERT INTO t VALUES (800, 1, 5); INSERT INTO t VALUES (801, 1, 0); INSERT INTO t VALUES (802, 1, 2); COMMIT")
        .await;
    let report = rig.views.show(&view_ref("ratios")).await.unwrap();
    assert_eq!(report.state, State::Failing);
    assert_eq!(report.reason.as_deref(), Some("division by zero"));
    assert!(!report.is_current);
    assert_eq!(error_code(rig.views.refresh(&view_ref("ratios")).await), "view_refresh_failed");
    rig.execute("DELETE FROM t WHERE v = 0").await;
    assert_eq!(rig.refresh("ratios").await.outcome, "full");
    rig.execute("INSERT INTO t VALUES (803, 1, 50)").await;
    rig.verify(&["ratios", "sums"]).await;
    assert_eq!(rig.refresh("ratios").await.outcome, "nothing");
    rig.execute("ALTER TABLE t DROP COLUMN v").await;
    rig.execute("INSERT INTO t VALUES (804, 2)").await;
    rig.execute("DELETE FROM t").await;
    let report = rig.views.show(&view_ref("sums")).await.unwrap();
    assert_eq!(report.state, State::New);
    assert!(!report.is_current);
}

#[tokio::test]
async fn a_view_is_made_immediate_and_something_else_again() {
    let rig = Rig::new(18).await;
    rig.execute("CREATE TABLE p (id int, g int, v int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)")
        .await;
    let sums = "SELECT g, sum(v) AS s FROM p GROUP BY g";
    rig.create(new_view("sums", sums)).await.unwrap();
    rig.create(new_view("others", "SELECT g, v FROM p WHERE v > 1")).await.unwrap();
    rig.execute("GRANT SELECT ON sums TO public").await;
    let mode = |mode| Alteration { mode: Some(mode), ..Alteration::default() };
    let altered = rig
        .views
        .alter(&view_ref("sums"), mode(Mode::Immediate), ReadableViews::All)
        .await
        .unwrap();
    assert_eq!((altered.mode, altered.schedule), (Mode::Immediate, None));
    let total = "SELECT coalesce(sum(s), 0)::bigint FROM sums";
    rig.execute("INSERT INTO p VALUES (1, 1, 10)").await;
    assert_eq!(rig.query_number(total).await, 10);
    rig.execute("INSERT INTO p1 VALUES (2, 1, 5)").await;
    assert_eq!(rig.query_number(total).await, 15);
    // Rows of a partition that is attached come with no statement.
    rig.execute("CREATE TABLE p2 AS SELECT 150 AS id, 2 AS g, 7 AS v; ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200)")
        .await;
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    rig.execute("UPDATE p2 SET v = 8").await;
    assert_eq!(rig.query_number(total).await, 23);
    rig.execute("ALTER TABLE p DETACH PARTITION p2").await;
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    rig.execute("UPDATE p2 SET v = 9").await;
    let left = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'p2'::regclass AND tgname LIKE 'egret_before%'";
    assert_eq!(rig.query_number(left).await, 0);
    rig.verify(&["sums", "others"]).await;
    let reader = new_view("reader", "SELECT g FROM sums");
    assert_eq!(error_code(rig.create(reader.clone()).await), "view_unsupported");
    let lag = Alteration { schedule: Some(Some(Schedule::Manual)), ..Alteration::default() };
    assert_eq!(
        error_code(rig.views.alter(&view_ref("sums"), lag, ReadableViews::All).await),
        "invalid_request"
    );
    rig.views.alter(&view_ref("sums"), mode(Mode::Auto), ReadableViews::All).await.unwrap();
    rig.execute("INSERT INTO p VALUES (3, 1, 1)").await;
    assert_eq!(rig.query_number(total).await, 15);
    rig.create(reader).await.unwrap();
    assert_eq!(
        error_code(
            rig.views.alter(&view_ref("sums"), mode(Mode::Immediate), ReadableViews::All).await
        ),
        "view_in_use"
    );
    rig.verify(&["sums", "others"]).await;
    rig.views.uninstall(None, true).await.unwrap();
    let left = "SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace('egret') AND proname <> 'guard_schema'";
    assert_eq!(rig.query_number(left).await, 0);
    rig.execute("INSERT INTO p VALUES (4, 1, 1)").await;
}

/// A view that is not what its query says is computed anew while writers come and go: none of them
/// is ended.
#[tokio::test]
async fn writers_wait_while_a_view_is_computed_anew_and_none_is_lost() {
    let rig = Rig::with_all_views(18).await;
    rig.execute("UPDATE egret.view SET snapshot = NULL").await;
    let first = rig.database.connect().await;
    first
        .batch_execute("SET search_path = public; BEGIN; INSERT INTO t VALUES (900, 1, 1)")
        .await
        .unwrap();
    let views = rig.views.clone();
    let refreshed = tokio::spawn(async move { views.refresh(&view_ref("named")).await });
    wait_until_blocked(&rig.client).await;
    let mut writers = Vec::new();
    for n in 0..4 {
        let client = rig.database.connect().await;
        writers.push(tokio::spawn(async move {
            let sql = format!(
                "SET search_path = public; INSERT INTO t VALUES ({}, 1, 1); INSERT INTO u VALUES ({}, 'x')",
                901 + n,
                50 + n
            );
            client.batch_execute(&sql).await
        }));
    }
    first.batch_execute("COMMIT").await.unwrap();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    refreshed.await.unwrap().unwrap();
    for (name, _) in QUERIES {
        rig.refresh(name).await;
    }
    rig.assert_views_match(&rig.client, "computed anew").await;
    rig.execute("DELETE FROM t WHERE id > 900").await;
    rig.assert_views_match(&rig.client, "after that").await;
}

/// What a statement has recorded is of no use to others when the view is suspended before the
/// statement ends.
#[tokio::test]
async fn what_was_recorded_and_not_applied_is_not_applied_later() {
    let rig = Rig::with_all_views(18).await;
    rig.execute(
        "CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
         IF NEW.id = 950 THEN UPDATE u SET name = 'more' WHERE g = 1; PERFORM pg_advisory_xact_lock(1); END IF;
         RETURN NULL;
         END $$;
         CREATE TRIGGER more AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION more()",
    )
    .await;
    let gate = rig.database.connect().await;
    gate.batch_execute("SELECT pg_advisory_lock(1)").await.unwrap();
    let writer = rig.database.connect().await;
    let writer = tokio::spawn(async move {
        let sql = "SET search_path = public; INSERT INTO t VALUES (950, 1, 1)";
        writer.batch_execute(sql).await
    });
    wait_until_blocked(&rig.client).await;
    let active = |is_active| Alteration { is_active: Some(is_active), ..Alteration::default() };
    rig.views.alter(&view_ref("named"), active(false), ReadableViews::All).await.unwrap();
    gate.batch_execute("SELECT pg_advisory_unlock(1)").await.unwrap();
    writer.await.unwrap().unwrap();
    // Writers do not know it while it is suspended.
    rig.execute("INSERT INTO t VALUES (951, 1, 1)").await;
    rig.views.alter(&view_ref("named"), active(true), ReadableViews::All).await.unwrap();
    rig.assert_views_match(&rig.client, "resumed").await;
    rig.execute(
        "WITH one AS (UPDATE u SET name = 'other' WHERE g = 1) INSERT INTO t VALUES (952, 1, 1)",
    )
    .await;
    rig.assert_views_match(&rig.client, "both at once").await;
}

/// The settings of a view apply to the view alone, and do not fail a writer's statement when they
/// have become invalid.
#[tokio::test]
async fn settings_of_a_view_are_not_those_of_its_writers() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.execute(&format!(
        "CREATE TEXT SEARCH CONFIGURATION mine (COPY = english);
         ALTER DATABASE \"{}\" SET default_text_search_config = 'public.mine';
         ALTER DATABASE \"{}\" SET \"TimeZone\" = 'Asia/Tokyo'",
        rig.database.name, rig.database.name
    ))
    .await;
    rig.create(new_immediate_view(
        "hours",
        "SELECT id, date_part('hour', to_timestamp(v)) AS hour FROM t",
    ))
    .await
    .unwrap();
    rig.execute("SET \"TimeZone\" = 'America/New_York'; BEGIN; INSERT INTO t VALUES (970, 1, 0)")
        .await;
    let zone =
        "SELECT count(*) FROM pg_settings WHERE name = 'TimeZone' AND setting = 'America/New_York'";
    assert_eq!(rig.query_number(zone).await, 1);
    rig.execute("COMMIT").await;
    let hour = "SELECT hour::bigint FROM hours WHERE id = 970";
    assert_eq!(rig.query_number(hour).await, 9);
    assert_eq!(rig.query_number(zone).await, 1);
    rig.execute("DROP TEXT SEARCH CONFIGURATION mine; INSERT INTO t VALUES (971, 1, 0)").await;
    let report = rig.views.show(&view_ref("hours")).await.unwrap();
    assert_eq!(report.state, State::Failing);
    assert!(!report.is_current);
    let read = rig.client.query("SELECT count(*) FROM hours", &[]).await;
    assert_eq!(read.unwrap_err().code(), Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE));
}

#[tokio::test]
async fn steps_of_statements_are_removed_by_those_that_come_after() {
    let rig = Rig::with_all_views(18).await;
    for n in 0..50 {
        rig.execute(&format!("INSERT INTO t VALUES ({}, 1, 1)", 1000 + n)).await;
    }
    let left = "SELECT count(*) FROM egret.view_statement";
    assert!(rig.query_number(left).await <= 2 * QUERIES.len() as i64);
}
