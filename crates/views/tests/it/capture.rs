//! Every way to change a table is seen, and none fails because it is watched.

use egret_postgres::tokio_postgres::Client;
use egret_postgres_test::TestDatabase;
use egret_views::testing::{Refreshable, create, install};

const QUERY: &str = "SELECT c, count(*) AS n, sum(d) AS s FROM t GROUP BY c";

struct CaptureFixture {
    client: Client,
    view: Refreshable,
    _database: TestDatabase,
}

impl CaptureFixture {
    async fn new(version: u32, setup: &str) -> Self {
        let database = TestDatabase::create(version).await;
        let mut client = database.connect().await;
        install(&mut client).await.unwrap();
        client.batch_execute(setup).await.unwrap();
        let view = create(&mut client, "public", "v", QUERY).await.unwrap();
        view.refresh(&mut client).await.unwrap();
        Self { client, view, _database: database }
    }

    /// Changes something; returns whether the view was computed anew. It is what its query says
    /// then.
    async fn is_rebuilt_after(&mut self, change: &str) -> bool {
        self.client.batch_execute(change).await.unwrap();
        let refreshed = self
            .view
            .refresh(&mut self.client)
            .await
            .unwrap_or_else(|error| panic!("{change}: {error:?}"));
        let sql = format!(
            "SELECT count(*) FROM ((TABLE v EXCEPT ALL {QUERY}) UNION ALL ({QUERY} EXCEPT ALL TABLE v)) AS d"
        );
        let differences: i64 = self.client.query_one(&sql, &[]).await.unwrap().get(0);
        assert_eq!(differences, 0, "{change}");
        refreshed.is_full
    }
}

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, c text, d int, extra text); \
    INSERT INTO t SELECT i, chr(97 + i % 3), i, 'e' FROM generate_series(1, 9) AS i;";

#[tokio::test]
async fn whatever_changes_rows() {
    for version in [15, 18] {
        let mut world = CaptureFixture::new(version, TABLE).await;
        let changes = [
            "INSERT INTO t VALUES (10, 'a', 1), (11, NULL, NULL)",
            "UPDATE t SET d = d + 1 WHERE c = 'a'",
            "UPDATE t SET extra = 'other'",
            "UPDATE t SET c = 'z' WHERE id % 2 = 0",
            "UPDATE t SET c = NULL WHERE id = 3",
            "DELETE FROM t WHERE c IS NULL",
            "INSERT INTO t VALUES (1, 'a', 5), (99, 'q', 5) ON CONFLICT (id) DO UPDATE SET d = excluded.d, c = 'r'",
            "MERGE INTO t USING (VALUES (1), (2), (77)) AS s (id) ON t.id = s.id \
             WHEN MATCHED AND t.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET d = 1000 \
             WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'm', 1)",
            "WITH gone AS (DELETE FROM t WHERE d > 5 RETURNING *) INSERT INTO t SELECT id + 1000, c, d FROM gone",
            "SET session_replication_role = replica; INSERT INTO t VALUES (500, 'rep', 1); RESET session_replication_role",
            "BEGIN; INSERT INTO t VALUES (600, 'b', 1); SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; COMMIT",
            "BEGIN; DELETE FROM t; ROLLBACK",
            "DO $$ BEGIN INSERT INTO t VALUES (700, 'x', 1); BEGIN DELETE FROM t; RAISE 'no'; EXCEPTION WHEN OTHERS THEN NULL; END; END $$",
            "DELETE FROM t WHERE false",
            "DELETE FROM t",
        ];
        for change in changes {
            assert!(!world.is_rebuilt_after(change).await, "{change}");
        }
    }
}

#[tokio::test]
async fn a_row_that_goes_with_another() {
    let setup = "CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1), (2), (3); \
        CREATE TABLE t (id int PRIMARY KEY, c text, d int REFERENCES parent ON DELETE CASCADE ON UPDATE SET NULL); \
        INSERT INTO t VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 2), (4, 'b', 3);";
    let mut world = CaptureFixture::new(18, setup).await;
    assert!(!world.is_rebuilt_after("DELETE FROM parent WHERE id = 2").await);
    assert!(!world.is_rebuilt_after("UPDATE parent SET id = 30 WHERE id = 3").await);
}

#[tokio::test]
async fn what_rows_do_not_say_computes_it_anew() {
    let mut world = CaptureFixture::new(18, TABLE).await;
    assert!(world.is_rebuilt_after("TRUNCATE t").await);
    assert!(
        world.is_rebuilt_after("BEGIN; TRUNCATE t; INSERT INTO t VALUES (1, 'a', 1); COMMIT").await
    );
    assert!(!world.is_rebuilt_after("INSERT INTO t VALUES (2, 'b', 2)").await);
    // With a transition table of nothing the types still are what they were.
    assert!(!world.is_rebuilt_after("DELETE FROM t WHERE id = 12345").await);
}

#[tokio::test]
async fn no_statement_fails_when_a_column_has_gone_or_changed() {
    let mut world = CaptureFixture::new(18, TABLE).await;
    let client = &mut world.client;
    let wider = "ALTER TABLE t ALTER COLUMN d TYPE bigint";
    client.batch_execute(wider).await.unwrap();
    let writes = [
        "INSERT INTO t (id, c, d) VALUES (20, 'a', 5000000000)",
        "UPDATE t SET d = d + 5000000000",
        "DELETE FROM t WHERE id = 20",
    ];
    for write in writes {
        client.batch_execute(write).await.unwrap();
    }
    client.batch_execute("ALTER TABLE t ALTER COLUMN d TYPE text").await.unwrap();
    client.batch_execute("INSERT INTO t (id, c, d) VALUES (21, 'a', 'five')").await.unwrap();
    client.batch_execute("ALTER TABLE t DROP COLUMN d, DROP COLUMN extra").await.unwrap();
    for write in ["INSERT INTO t (id, c) VALUES (22, 'a')", "UPDATE t SET c = 'b'", "DELETE FROM t"]
    {
        client.batch_execute(write).await.unwrap();
    }
    let sql = "SELECT count(*) FILTER (WHERE egret_weight = 0) FROM egret.changes_1";
    let breaks: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    // All of those since the type changed. A column that is not there is null, of the type that was
    // recorded.
    assert_eq!(breaks, 4);
}

#[tokio::test]
async fn partitions_are_watched_whichever_table_a_statement_names() {
    let setup = "CREATE TABLE t (id int, c text, d int) PARTITION BY RANGE (id); \
        CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (100) PARTITION BY LIST (c); \
        CREATE TABLE low_a PARTITION OF low FOR VALUES IN ('a'); \
        CREATE TABLE low_b (d int, id int, c text); ALTER TABLE low ATTACH PARTITION low_b FOR VALUES IN ('b'); \
        CREATE TABLE high PARTITION OF t FOR VALUES FROM (100) TO (200); \
        CREATE TABLE alone (id int, c text, d int); INSERT INTO alone VALUES (250, 'q', 1); \
        INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (100, 'c', 3);";
    let mut world = CaptureFixture::new(15, setup).await;
    for change in [
        "INSERT INTO t VALUES (3, 'a', 5), (150, 'x', 6)",
        "INSERT INTO low_b VALUES (7, 4, 'b')",
        "UPDATE low SET d = d + 1",
        "UPDATE t SET id = id + 98, c = 'moved' WHERE id = 2",
        "UPDATE low_a SET d = 100",
        "DELETE FROM high WHERE c = 'x'",
        "DELETE FROM low_b",
    ] {
        assert!(!world.is_rebuilt_after(change).await, "{change}");
    }
    for change in [
        "TRUNCATE low_a",
        "CREATE TABLE more PARTITION OF t FOR VALUES FROM (300) TO (400); INSERT INTO more VALUES (300, 'm', 1)",
        "ALTER TABLE t ATTACH PARTITION alone FOR VALUES FROM (200) TO (300)",
    ] {
        assert!(world.is_rebuilt_after(change).await, "{change}");
    }
    for change in
        ["INSERT INTO more VALUES (301, 'm', 2)", "UPDATE alone SET d = 9", "DELETE FROM alone"]
    {
        assert!(!world.is_rebuilt_after(change).await, "{change}");
    }
    assert!(world.is_rebuilt_after("ALTER TABLE t DETACH PARTITION more").await);
    assert!(world.is_rebuilt_after("VACUUM FULL high").await);
    assert!(!world.is_rebuilt_after("INSERT INTO more VALUES (302, 'm', 2)").await);
}

#[tokio::test]
async fn an_update_that_leaves_what_is_needed_as_it_was_is_not_recorded() {
    for version in [15, 18] {
        let mut world = CaptureFixture::new(version, TABLE).await;
        let recorded = "SELECT count(*) FROM egret.changes_1";
        for (change, changes) in [
            ("UPDATE t SET extra = 'other'", 0),
            ("UPDATE t SET extra = id, d = d", 0),
            ("UPDATE t SET d = d + (id = 9)::int", 18),
            ("UPDATE t SET c = c WHERE false", 0),
        ] {
            world.client.batch_execute(change).await.unwrap();
            let row = world.client.query_one(recorded, &[]).await.unwrap();
            assert_eq!(row.get::<_, i64>(0), changes, "{change}");
            assert!(!world.is_rebuilt_after("").await);
        }
    }
}
