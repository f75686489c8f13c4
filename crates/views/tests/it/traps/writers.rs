//! What writers notice of being watched: nothing.

use egret_base::CodedError;
use egret_postgres::tokio_postgres::Client;

use crate::world::{World, create_empty_view};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, k int, d int, e text); \
    INSERT INTO t SELECT i, i % 3, i, 'e' FROM generate_series(1, 9) AS i;";
const QUERY: &str = "SELECT k, count(*) AS n, sum(d) AS s, max(e) AS m FROM t GROUP BY k";

/// Statements of every kind, that can be said again.
const WRITES: [&str; 4] = [
    "INSERT INTO t (id, k) VALUES (100, 1), (101, NULL)",
    "UPDATE t SET k = k + 1",
    "DELETE FROM t WHERE id >= 100",
    "TRUNCATE t",
];

/// A transaction that said NOTIFY cannot be prepared. Those of two writers are open at the same
/// time and commit in either order: NOTIFY would have one wait for the other.
#[tokio::test]
async fn no_notify_is_said_in_the_transaction_of_a_writer() {
    let mut world = World::new(18, TABLE).await;
    world.view(QUERY).await;
    let (one, other) = (world.database.connect().await, world.database.connect().await);
    let listener = world.database.connect().await;
    listener.batch_execute("LISTEN egret; LISTEN views; BEGIN").await.unwrap();
    one.batch_execute("BEGIN; UPDATE t SET d = d + 1 WHERE id = 1; INSERT INTO t VALUES (20, 1, 1, 'f'); DELETE FROM t WHERE id = 2; PREPARE TRANSACTION 'one'")
        .await
        .unwrap();
    other
        .batch_execute("BEGIN; UPDATE t SET k = 7 WHERE id = 3; PREPARE TRANSACTION 'other'")
        .await
        .unwrap();
    other.batch_execute("COMMIT PREPARED 'other'").await.unwrap();
    world.apply_change("").await;
    one.batch_execute("COMMIT PREPARED 'one'").await.unwrap();
    world.apply_change("").await;
    one.batch_execute("BEGIN; TRUNCATE t; PREPARE TRANSACTION 'none'").await.unwrap();
    one.batch_execute("COMMIT PREPARED 'none'").await.unwrap();
    assert!(world.refresh().await[0].is_full);
    // A listener in a transaction keeps all that was said since.
    let usage = world.text("SELECT pg_notification_queue_usage()").await;
    assert_eq!(usage.as_deref(), Some("0"));
}

async fn run_writes(client: &Client, prefix: &str) {
    for write in WRITES {
        let done = client.batch_execute(&format!("{prefix}{write}")).await;
        done.unwrap_or_else(|error| panic!("{write}: {error:?}"));
    }
}

#[tokio::test]
async fn no_write_fails_after_a_column_was_dropped_renamed_or_given_another_type() {
    for version in [15, 18] {
        for change in [
            "ALTER TABLE t DROP COLUMN d",
            "ALTER TABLE t DROP COLUMN d, DROP COLUMN e",
            "ALTER TABLE t RENAME COLUMN d TO other",
            "ALTER TABLE t ALTER COLUMN d TYPE text",
            "ALTER TABLE t ALTER COLUMN e TYPE bytea USING e::bytea",
            "ALTER TABLE t DROP COLUMN d, ADD COLUMN d text DEFAULT 'x'",
            "ALTER TABLE t RENAME TO other; CREATE VIEW t AS SELECT id, k FROM other",
        ] {
            let mut world = World::new(version, TABLE).await;
            world.view(QUERY).await;
            world.execute(change).await;
            let statements = if change.contains("VIEW") { &WRITES[..3] } else { &WRITES };
            for write in statements {
                world.execute(write).await;
            }
        }
    }
}

/// Nulls that a domain does not take are never made of its columns.
#[tokio::test]
async fn no_write_fails_when_a_column_is_of_a_domain_without_nulls() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE DOMAIN there AS int NOT NULL; CREATE DOMAIN real_text AS text CHECK (VALUE IS NOT NULL);
             CREATE TABLE t (id int PRIMARY KEY, k int, d there DEFAULT 1, e real_text DEFAULT 'e');
             CREATE TABLE u (id int, d there); INSERT INTO u VALUES (1, 1), (7, 7); INSERT INTO t VALUES (1, 1), (2, 2)",
        )
        .await;
        world.view("SELECT k, count(*) AS n, min(d) AS s, max(e) AS m FROM t GROUP BY k").await;
        world.view("SELECT t.id, t.d, t.e, u.d AS f FROM t LEFT JOIN u ON t.id = u.id").await;
        world.view("SELECT u.id, t.d, t.e FROM t RIGHT JOIN u ON t.id = u.id").await;
        for change in [
            "UPDATE t SET d = 5, id = 7 WHERE id = 1",
            "DELETE FROM u WHERE id = 7",
            "INSERT INTO t VALUES (8)",
            "DELETE FROM t",
        ] {
            world.apply_change(change).await;
        }
        run_writes(&world.client, "").await;
        assert!(world.refresh().await.iter().all(|done| done.is_full));
        world.execute("ALTER TABLE t DROP COLUMN d, DROP COLUMN e").await;
        run_writes(&world.client, "").await;
    }
}

/// A role that may write a table needs no access to schema `egret`, and code that runs with other
/// rights calls none of its functions.
#[tokio::test]
async fn a_writer_needs_no_rights_and_lends_none() {
    let mut world = World::new(18, TABLE).await;
    world.view(QUERY).await;
    let role = format!("writer_{}", world.database.name);
    world
        .execute(&format!(
            "CREATE ROLE {role}; GRANT ALL ON t TO {role}; CREATE SCHEMA hers AUTHORIZATION {role}; CREATE TABLE who (name text)"
        ))
        .await;
    let writer = world.database.connect().await;
    let hers = format!(
        "SET ROLE {role};
         CREATE FUNCTION hers.same(one text, other text) RETURNS boolean LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.who VALUES (current_user); RETURN one OPERATOR(pg_catalog.=) other; END $$;
         CREATE OPERATOR hers.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hers.same);
         SET search_path = hers, pg_catalog, public"
    );
    writer.batch_execute(&hers).await.unwrap();
    run_writes(&writer, "").await;
    assert_eq!(world.text("SELECT count(*) FROM who").await.as_deref(), Some("0"));
    assert!(world.refresh().await[0].is_full);
    drop(writer);
    world
        .execute(&format!(
            "DROP SCHEMA hers CASCADE; REVOKE ALL ON t FROM {role}; DROP ROLE {role}"
        ))
        .await;
}

const PARTITIONED: &str = "CREATE TABLE t (id int, k int, d int, e text) PARTITION BY RANGE (id); \
    CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10); CREATE TABLE high (d int, e text, k int, id int); \
    INSERT INTO t VALUES (1, 1, 1, 'x'); INSERT INTO high VALUES (12, 'y', 1, 12);";

#[tokio::test]
async fn statements_that_name_a_leaf_are_seen() {
    let mut world = World::new(18, PARTITIONED).await;
    world.execute("ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (10) TO (20)").await;
    world.view(QUERY).await;
    for change in [
        "INSERT INTO low VALUES (2, 2, 2, 'z'); INSERT INTO high (id, k, d) VALUES (13, 2, 3)",
        "UPDATE high SET k = 9 WHERE id = 12",
        "UPDATE t SET id = id + 10, d = d + 1 WHERE id = 2",
        "DELETE FROM low; DELETE FROM high WHERE id = 13",
    ] {
        assert!(world.apply_change(change).await[0] > 0, "{change}");
    }
}

#[tokio::test]
async fn statements_that_name_a_partition_attached_later_are_seen() {
    let mut world = World::new(18, PARTITIONED).await;
    world.view(QUERY).await;
    let attached = "ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (10) TO (20)";
    // Nothing records what is written before the next refresh, which reads everything.
    world
        .execute(&format!(
            "{attached}; INSERT INTO high (id, k) VALUES (14, 3); UPDATE high SET k = 4"
        ))
        .await;
    assert!(world.refresh().await[0].is_full);
    assert!(
        world
            .apply_change(
                "INSERT INTO high (id, k) VALUES (15, 3); UPDATE high SET k = 5 WHERE id = 14"
            )
            .await[0]
            > 0
    );
    // The detached partition is not part of the table any more: any session may write to it.
    world.execute("ALTER TABLE t DETACH PARTITION high").await;
    assert!(world.refresh().await[0].is_full);
    assert_eq!(world.apply_change("UPDATE high SET k = 6").await, [0]);
    // A transaction that began before the triggers came is waited for.
    world.execute(attached).await;
    let writer = world.database.connect().await;
    writer.batch_execute("BEGIN; INSERT INTO high (id, k) VALUES (16, 3)").await.unwrap();
    let refreshable = world.first().refreshable.clone();
    let commits = async {
        crate::world::wait_until_blocked(&writer).await;
        writer.batch_execute("UPDATE high SET k = k + 1; COMMIT").await.unwrap();
    };
    let (done, ()) = tokio::join!(refreshable.refresh(&mut world.client), commits);
    assert!(done.unwrap().is_full);
    world.first().assert_matches_query(&world.client).await;
    assert_eq!(world.apply_change("").await, [0]);
    assert!(world.apply_change("UPDATE high SET k = k + 1").await[0] > 0);
}

#[tokio::test]
async fn tables_with_row_level_security_are_refused() {
    let mut world = World::new(
        18,
        "CREATE TABLE t (id int, owner text); ALTER TABLE t ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own ON t USING (owner = current_user);
         CREATE TABLE forced (id int); ALTER TABLE forced ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
         CREATE TABLE open (id int); CREATE VIEW over AS SELECT id FROM t;
         CREATE TABLE parts (id int) PARTITION BY RANGE (id); ALTER TABLE parts ENABLE ROW LEVEL SECURITY",
    )
    .await;
    for query in [
        "SELECT id FROM t",
        "SELECT id FROM forced",
        "SELECT id FROM over",
        "SELECT id FROM parts",
        "SELECT open.id FROM open LEFT JOIN (SELECT id FROM t) AS s ON s.id = open.id",
        "WITH c AS (SELECT id FROM open UNION ALL SELECT id FROM over) SELECT count(*) AS n FROM c",
    ] {
        let refused = create_empty_view(&mut world.client, "v", query).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{query} is refused"));
        assert_eq!(refused.code(), "view_unsupported");
        assert!(refused.to_string().contains("row level security"), "{refused}");
    }
    assert_eq!(world.text("SELECT count(*) FROM egret.view").await.as_deref(), Some("0"));
}
