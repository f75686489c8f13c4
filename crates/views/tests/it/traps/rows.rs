//! Rows of views that have no key, and what users see of rows.

use crate::world::{World, query_rows};

#[tokio::test]
async fn rows_without_a_key_are_there_as_often_as_they_are() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE TABLE t (a int, b text, j json, n numeric, p point); CREATE TABLE u (a int);
             INSERT INTO t VALUES (1, 'x', '{}', 1, '(1,2)'), (1, 'x', '{}', 1, '(1,2)'), (1, 'x', '{ }', 1.0, '(1,2)'), (NULL, NULL, NULL, NULL, NULL);
             INSERT INTO u VALUES (1), (1), (NULL)",
        )
        .await;
        world.view("SELECT a, b FROM t").await;
        world.view("SELECT * FROM t").await;
        world.view("SELECT t.b, t.n FROM t JOIN u ON t.a = u.a").await;
        world.view("SELECT t.b, u.a FROM t FULL JOIN u ON t.a = u.a").await;
        world.view("SELECT b FROM t UNION ALL SELECT b FROM t WHERE a IS NULL").await;
        for change in [
            "DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t)",
            "INSERT INTO t SELECT * FROM t; INSERT INTO u TABLE u",
            "UPDATE t SET n = 1.000 WHERE ctid = (SELECT max(ctid) FROM t)",
            "UPDATE t SET a = 2, b = 'y' WHERE ctid IN (SELECT ctid FROM t WHERE a = 1 LIMIT 1)",
            // The same row again, and another that goes and comes back.
            "UPDATE t SET a = a; DELETE FROM u WHERE a = 1; INSERT INTO u VALUES (1)",
            "DELETE FROM t WHERE a IS NULL AND ctid = (SELECT max(ctid) FROM t WHERE a IS NULL)",
            "DELETE FROM u WHERE ctid = (SELECT max(ctid) FROM u)",
            "UPDATE t SET j = NULL, p = NULL; UPDATE t SET b = ''",
            "DELETE FROM t; DELETE FROM u",
        ] {
            world.apply_change(change).await;
        }
    }
}

/// The columns of a relation or query, with their types and collations.
async fn columns(world: &World, relation: &str) -> Vec<String> {
    let sql = format!(
        "SELECT attname, format_type(atttypid, atttypmod) AS type, attcollation::regcollation AS collation \
         FROM pg_attribute WHERE attrelid = '{relation}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    );
    query_rows(&world.client, &sql).await
}

#[tokio::test]
async fn a_view_has_the_columns_of_its_query_and_no_others() {
    let mut world = World::new(
        18,
        r#"CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
           CREATE TABLE t (id int PRIMARY KEY, "a ""b"" $1" varchar(7), "C" text COLLATE "C", m numeric(10,2), p positive, v int[], c1 int, egret_count int);
           CREATE TABLE u (k text, b bpchar(3)); INSERT INTO u VALUES (NULL, 'x')"#,
    )
    .await;
    for query in [
        // Rows with a key that is not shown, and without a key.
        r#"SELECT "a ""b"" $1", "C", m, p, v FROM t"#,
        "SELECT k, b FROM u",
        "SELECT u.b, t.m FROM t LEFT JOIN u ON u.k = t.\"C\"",
        // Groups with what is carried, and the hash of a key that may be null.
        "SELECT sum(m) AS \"Sum of m\", avg(m) FROM t",
        "SELECT count(*) AS n FROM u GROUP BY k",
        "SELECT k FROM u GROUP BY k HAVING count(*) > 0",
        "SELECT DISTINCT b, 'm' AS \"Größe\" FROM u",
        "SELECT c1, egret_count, id AS c2 FROM t",
        "SELECT k AS egret_hash, count(*) AS egret_weight FROM u GROUP BY k",
        "SELECT 1 AS one FROM t",
    ] {
        let name = world.view(query).await.name.clone();
        world.execute(&format!("CREATE VIEW asked AS {query}")).await;
        assert_eq!(columns(&world, &name).await, columns(&world, "asked").await, "{query}");
        world.execute("DROP VIEW asked").await;
    }
    world.apply_change(r#"INSERT INTO t VALUES (1, 'x', 'y', 1, 1, '{1}', 1, 1), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL); UPDATE u SET k = 'y'"#).await;
    world
        .apply_change("DELETE FROM t WHERE id = 1; INSERT INTO u VALUES (NULL, NULL), (NULL, NULL)")
        .await;
}
