//! Views in mode immediate while no write maintains them: a reader gets the rows of the query or
//! an error, in every transaction.

use egret_postgres::tokio_postgres::error::SqlState;

use super::immediate::new_immediate_view;
use super::*;
use crate::world::wait_until_blocked;

const SUMS: &str =
    "SELECT t.g, count(*) AS n, sum(u.v) AS s FROM t LEFT JOIN u ON u.id = t.id GROUP BY t.g";

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, g int);
     INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 30) AS i;
     CREATE TABLE u (id int PRIMARY KEY, v int);
     INSERT INTO u SELECT i, i FROM generate_series(1, 9) AS i";

const PARTITIONED: &str = "CREATE TABLE t (id int, g int) PARTITION BY RANGE (id);
     CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100);
     INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 30) AS i;
     CREATE TABLE u (id int PRIMARY KEY, v int);
     CREATE TABLE t2 AS SELECT 150 AS id, 2 AS g";

/// What a reader gets: whether all rows are right, or the error.
async fn read(client: &Client) -> Result<bool, SqlState> {
    let sql = format!(
        "SELECT NOT EXISTS (SELECT FROM (SELECT r::text AS r, 1 AS w FROM sums AS r UNION ALL \
         SELECT r::text, -1 FROM ({SUMS}) AS r) AS both_sides GROUP BY r HAVING sum(w) <> 0)"
    );
    match client.query_one(&sql, &[]).await {
        Ok(row) => Ok(row.get(0)),
        Err(error) => Err(error.code().unwrap().clone()),
    }
}

const REFUSED: Result<bool, SqlState> = Err(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);

impl Rig {
    async fn with_sums(version: u32, tables: &str) -> Self {
        let rig = Self::new(version).await;
        rig.execute(tables).await;
        rig.create(new_immediate_view("sums", SUMS)).await.unwrap();
        assert_eq!(read(&rig.client).await, Ok(true));
        rig
    }

    async fn writer(&self) -> Client {
        let client = self.database.connect().await;
        let set = "SET search_path = public";
        client.batch_execute(set).await.unwrap();
        client
    }

    async fn state(&self) -> String {
        let sql = "SELECT state FROM egret.view";
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }
}

/// The claim is committed before the rebuild excludes writers. Egret may die in between.
#[tokio::test]
async fn a_view_that_is_claimed_is_not_active_and_refuses_until_it_is_rebuilt() {
    for version in [18, 15] {
        let rig = Rig::with_sums(version, TABLES).await;
        rig.execute("UPDATE egret.view SET snapshot = NULL").await;
        let before = rig.writer().await;
        let insert = "BEGIN; INSERT INTO t VALUES (100, 1)";
        before.batch_execute(insert).await.unwrap();
        let views = rig.views.clone();
        let refresh = tokio::spawn(async move { views.refresh(&view_ref("sums")).await });
        wait_until_blocked(&rig.client).await;
        refresh.abort();
        _ = refresh.await;
        assert_eq!(rig.state().await, "new");
        assert_eq!(read(&before).await, REFUSED);
        before.batch_execute("ROLLBACK").await.unwrap();
        let after = rig.writer().await;
        let insert = "BEGIN; INSERT INTO t VALUES (101, 1); SAVEPOINT before";
        after.batch_execute(insert).await.unwrap();
        assert_eq!(read(&after).await, REFUSED);
        let commit = "ROLLBACK TO before; INSERT INTO t VALUES (102, 1); COMMIT";
        after.batch_execute(commit).await.unwrap();
        assert_eq!(read(&after).await, REFUSED);
        let found =
            rig.client.query_one("SELECT state, is_current FROM egret.freshness('sums')", &[]);
        let found = found.await.unwrap();
        assert_eq!((found.get::<_, &str>(0), found.get::<_, bool>(1)), ("new", false));

        let restarted = new_engine(&rig.database, ViewsConfig::default());
        restarted.refresh(&view_ref("sums")).await.unwrap();
        assert_eq!(rig.state().await, "active");
        assert_eq!(read(&after).await, Ok(true));
        after.batch_execute("INSERT INTO u VALUES (101, 5)").await.unwrap();
        assert_eq!(read(&after).await, Ok(true));
    }
}

#[tokio::test]
async fn the_error_names_the_view_and_what_to_do_and_readers_need_no_rights_for_it() {
    let rig = Rig::with_sums(18, TABLES).await;
    let role = format!("reader_{}", rig.database.name);
    rig.execute(&format!(
        "CREATE ROLE {role}; GRANT SELECT ON sums TO {role}; GRANT USAGE ON SCHEMA public TO {role}"
    ))
    .await;
    let reader = rig.writer().await;
    let become_reader = format!("SET ROLE {role}");
    reader.batch_execute(&become_reader).await.unwrap();
    let count = "SELECT count(*) FROM sums";
    assert_eq!(reader.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 3);
    let suspend = Alteration { is_active: Some(false), ..Alteration::default() };
    rig.alter("sums", suspend).await.unwrap();
    let error = reader.query_one(count, &[]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert!(error.message().contains("view public.sums is suspended"), "{error:?}");
    assert_eq!(error.hint(), Some("Run: egret view alter public.sums --resume"));
    rig.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// Neither changes what a view shows without its triggers.
#[tokio::test]
async fn a_view_stays_exact_where_the_files_of_its_tables_change() {
    for version in [18, 15] {
        let rig = Rig::with_sums(version, TABLES).await;
        for statement in [
            "TRUNCATE u",
            "INSERT INTO u VALUES (1, 1), (2, 2)",
            "VACUUM FULL t",
            "CLUSTER t USING t_pkey",
            "ALTER TABLE t ADD COLUMN more int DEFAULT 1, ALTER g SET STATISTICS 10",
            "CREATE INDEX ON u (v)",
            "REINDEX TABLE t",
            "TRUNCATE t, u",
            "INSERT INTO t VALUES (1, 1)",
        ] {
            rig.execute(statement).await;
            let found = read(&rig.client).await;
            // Statistics are kept with what a column is.
            let is_altered = statement.contains("STATISTICS");
            assert_eq!(found, if is_altered { REFUSED } else { Ok(true) }, "{statement}");
            let outcome = if is_altered { "full" } else { "nothing" };
            assert_eq!(rig.refresh("sums").await.outcome, outcome, "{statement}");
            assert_eq!(read(&rig.client).await, Ok(true), "{statement}");
        }
    }
}

/// What is read between the alteration and the rebuild, and whether it is taken back or not.
#[tokio::test]
async fn a_view_refuses_where_its_tables_change_without_a_statement() {
    for version in [18, 15] {
        let rig = Rig::with_sums(version, TABLES).await;
        for alteration in [
            "ALTER TABLE t ALTER g TYPE int USING g + 1",
            "ALTER TABLE t DISABLE TRIGGER USER; INSERT INTO t VALUES (200, 7); ALTER TABLE t ENABLE TRIGGER USER",
            "CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (300, 8)",
        ] {
            let writer = rig.writer().await;
            let within = format!("BEGIN; {alteration}");
            writer.batch_execute(&within).await.unwrap();
            assert_eq!(read(&writer).await, REFUSED, "{alteration}");
            writer.batch_execute("ROLLBACK").await.unwrap();
            assert_eq!(read(&writer).await, Ok(true), "{alteration}");
            // Tables with children of their own kind are not covered.
            if alteration.contains("child") {
                continue;
            }
            writer.batch_execute(&within).await.unwrap();
            writer.batch_execute("COMMIT").await.unwrap();
            assert_eq!(read(&writer).await, REFUSED, "{alteration}");
            rig.refresh("sums").await;
            assert_eq!(read(&writer).await, Ok(true), "{alteration}");
        }
    }
}

#[tokio::test]
async fn partitions_that_come_and_go_are_noticed_at_once() {
    for version in [18, 15] {
        let rig = Rig::with_sums(version, PARTITIONED).await;
        let attach = "ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (100) TO (200)";
        let writer = rig.writer().await;
        writer.batch_execute("BEGIN; INSERT INTO t VALUES (31, 1)").await.unwrap();
        assert_eq!(read(&writer).await, Ok(true));
        rig.execute(attach).await;
        assert_eq!(read(&writer).await, REFUSED);
        writer.batch_execute("ROLLBACK; INSERT INTO t2 VALUES (151, 1)").await.unwrap();
        assert_eq!(read(&writer).await, REFUSED);
        // What came in through the table goes with the partition.
        rig.execute("INSERT INTO t VALUES (160, 1); ALTER TABLE t DETACH PARTITION t2").await;
        assert_eq!(read(&rig.client).await, REFUSED);
        assert_eq!(rig.refresh("sums").await.outcome, "full");
        assert_eq!(read(&rig.client).await, Ok(true));
        rig.execute(attach).await;
        rig.refresh("sums").await;
        rig.execute(
            "UPDATE t2 SET g = 1 WHERE id = 150; TRUNCATE t2; INSERT INTO t2 VALUES (170, 0)",
        )
        .await;
        assert_eq!(read(&rig.client).await, Ok(true));
        rig.execute("ALTER TABLE t DETACH PARTITION t2; ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (100) TO (200)")
            .await;
        assert_eq!(read(&rig.client).await, REFUSED);
        rig.refresh("sums").await;
        assert_eq!(read(&rig.client).await, Ok(true));
        rig.execute("DROP TABLE t2").await;
        assert_eq!(read(&rig.client).await, REFUSED);
        rig.refresh("sums").await;
        rig.verify(&["sums"]).await;
    }
}

/// The view has the changes of a statement once that has ended.
#[tokio::test]
async fn a_view_is_not_read_within_a_statement_that_changes_its_tables() {
    let rig = Rig::with_sums(18, TABLES).await;
    rig.execute(
        "CREATE TABLE seen (n bigint);
         CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
         IF NEW.id > 500 THEN INSERT INTO seen SELECT sum(n) FROM sums; END IF;
         RETURN NULL;
         END $$;
         CREATE TRIGGER look AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION look()",
    )
    .await;
    rig.execute(
        "BEGIN; INSERT INTO t VALUES (500, 1); INSERT INTO seen SELECT sum(n) FROM sums; COMMIT",
    )
    .await;
    let error = rig.client.batch_execute("INSERT INTO t VALUES (501, 1)").await.unwrap_err();
    let message = error.as_db_error().unwrap().message();
    assert!(message.contains("read within a statement"), "{message}");
    assert_eq!(read(&rig.client).await, Ok(true));
    assert_eq!(rig.query_number("SELECT sum(n)::bigint FROM seen").await, 31);
}

/// A view that is altered to another mode is read without a condition, and refuses again in mode
/// immediate.
#[tokio::test]
async fn only_a_view_in_mode_immediate_refuses() {
    let rig = Rig::with_sums(18, TABLES).await;
    let mode = |mode| Alteration { mode: Some(mode), ..Alteration::default() };
    rig.alter("sums", mode(Mode::Auto)).await.unwrap();
    rig.execute("UPDATE egret.view SET snapshot = NULL").await;
    assert_eq!(read(&rig.client).await, Ok(true));
    rig.execute("UPDATE egret.view SET snapshot = NULL, stamp = NULL").await;
    rig.alter("sums", mode(Mode::Immediate)).await.unwrap();
    assert_eq!(read(&rig.client).await, Ok(true));
    rig.execute("UPDATE egret.view SET snapshot = NULL").await;
    assert_eq!(read(&rig.client).await, REFUSED);
}

/// Readers that are refused wait for Egret to notice, so that is soon.
#[tokio::test]
async fn a_running_egret_rebuilds_a_view_that_is_refused_by_itself() {
    let rig = Rig::with_sums(18, PARTITIONED).await;
    rig.views.start().await.unwrap();
    for statement in [
        "ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (100) TO (200)",
        "ALTER TABLE t DETACH PARTITION t2",
        "ALTER TABLE u ALTER v TYPE int USING v + 1",
    ] {
        rig.execute(statement).await;
        eventually("the view is read again", async || read(&rig.client).await == Ok(true)).await;
    }
    rig.views.stop().await;
}

/// Its stamp is of another kind, so it is recomputed once.
#[tokio::test]
async fn a_view_of_an_earlier_version_refuses_from_its_next_refresh_on() {
    for version in [18, 15] {
        let rig = Rig::with_sums(version, TABLES).await;
        let sql = "SELECT regexp_replace(pg_get_viewdef('sums'::regclass), 'WHERE [^W]*require_live_view.*$', '')";
        let shown: String = rig.client.query_one(sql, &[]).await.unwrap().get(0);
        rig.execute(&format!(
            "CREATE OR REPLACE VIEW sums AS {shown}; \
             UPDATE egret.view SET stamp = split_part(stamp, ';', 1) || ';1;1:1:1'"
        ))
        .await;
        rig.execute("UPDATE t SET g = g + 1").await;
        assert_eq!(read(&rig.client).await, Ok(false));
        assert_eq!(rig.refresh("sums").await.outcome, "full");
        assert_eq!(read(&rig.client).await, Ok(true));
        rig.execute("UPDATE egret.view SET snapshot = NULL").await;
        assert_eq!(read(&rig.client).await, REFUSED);
    }
}
