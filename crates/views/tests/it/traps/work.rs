//! What a refresh reads and writes: in proportion to what changed.

use crate::world::{World, changed_row_count};

const ROWS: i64 = 20_000;

/// Rows read of `tables` so far, and rows written of the tables of views.
async fn count_work(world: &World) -> (i64, i64) {
    // Of this session and its statements before.
    world.execute("SELECT pg_stat_force_next_flush()").await;
    let number = |text: Option<String>| text.unwrap().parse().unwrap();
    let read = "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables WHERE schemaname = 'public'";
    let written = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables WHERE relname LIKE 'view\\_%' AND schemaname = 'egret' AND relname ~ '[0-9]'";
    (number(world.text(read).await), number(world.text(written).await))
}

#[tokio::test]
async fn nothing_is_computed_anew_behind_a_refresh_of_what_changed() {
    let setup = format!(
        "CREATE TABLE t (id int PRIMARY KEY, k int, d int); CREATE TABLE u (id int PRIMARY KEY, name text);
         INSERT INTO t SELECT i, i % 1000, i FROM generate_series(1, {ROWS}) AS i;
         INSERT INTO u SELECT i, 'u' || i FROM generate_series(0, 999) AS i;
         CREATE INDEX ON t (k); ANALYZE t, u"
    );
    for version in [15, 18] {
        let mut world = World::new(version, &setup).await;
        for query in [
            "SELECT id, d * 2 AS e FROM t",
            "SELECT id FROM t WHERE d > 100",
            "SELECT k, d FROM t",
            "SELECT k, count(*) AS n, sum(d) AS s, avg(d) AS a FROM t GROUP BY k",
            "SELECT count(*) AS n, sum(d) AS s FROM t",
            "SELECT n, count(*) AS groups FROM (SELECT k, count(*) AS n FROM t GROUP BY k) AS g GROUP BY n",
            "SELECT DISTINCT k FROM t",
            "SELECT k FROM t UNION ALL SELECT d FROM t",
        ] {
            world.view(query).await;
        }
        // The planner needs statistics of the current rows, as on a server that has run for a
        // while.
        world.execute("ANALYZE").await;
        world.execute("INSERT INTO t VALUES (100001, 1, 1000); UPDATE t SET d = d + 1 WHERE id = 500; DELETE FROM t WHERE id = 7").await;
        for view in &world.views {
            let (read, written) = count_work(&world).await;
            let done = view.refresh(&mut world.client).await;
            assert!(
                !done.is_full && changed_row_count(&done) > 0 && changed_row_count(&done) < 20,
                "{}: {done:?}",
                view.query
            );
            let (read_now, written_now) = count_work(&world).await;
            assert_eq!(read_now - read, 0, "{} reads its table", view.query);
            assert!(written_now - written <= 20, "{}: {}", view.query, written_now - written);
        }
        for view in &world.views {
            view.assert_matches_query(&world.client).await;
        }
    }
}

#[tokio::test]
async fn a_join_reads_the_partners_of_what_changed_by_their_index() {
    let setup = format!(
        "CREATE TABLE t (id int PRIMARY KEY, k int, d int); CREATE TABLE u (id int PRIMARY KEY, name text);
         INSERT INTO t SELECT i, i, i FROM generate_series(1, {ROWS}) AS i;
         INSERT INTO u SELECT i, 'u' || i FROM generate_series(1, {ROWS}) AS i;
         CREATE INDEX ON t (k); ANALYZE t, u"
    );
    let mut world = World::new(18, &setup).await;
    for query in [
        "SELECT t.id, t.d, u.name FROM t JOIN u ON t.k = u.id",
        "SELECT t.id, u.name FROM t LEFT JOIN u ON t.k = u.id",
        "SELECT u.name, count(*) AS n, sum(t.d) AS s FROM t JOIN u ON t.k = u.id GROUP BY u.name",
    ] {
        world.view(query).await;
    }
    world.execute("ANALYZE").await;
    let changes = [
        "UPDATE t SET d = d + 1 WHERE id = 5",
        "UPDATE u SET name = 'new' WHERE id = 9",
        "INSERT INTO t VALUES (0, 3, 3); DELETE FROM t WHERE id = 4",
    ];
    for change in changes {
        world.execute(change).await;
        for view in &world.views {
            let (read, _) = count_work(&world).await;
            let done = view.refresh(&mut world.client).await;
            assert!(!done.is_full && changed_row_count(&done) <= 4, "{}: {done:?}", view.query);
            let (read_now, _) = count_work(&world).await;
            assert!(
                read_now - read < ROWS / 10,
                "{change}: {} reads {}",
                view.query,
                read_now - read
            );
        }
    }
    for view in &world.views {
        view.assert_matches_query(&world.client).await;
    }
}
