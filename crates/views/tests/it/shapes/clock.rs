//! Conditions on the clock: rows come and go as time passes, even without writes.

use std::time::SystemTime;

use crate::world::{World, changed_row_count, wait_until};

/// With a key, without, and small.
const TABLES: &str =
    "CREATE TABLE e (id int PRIMARY KEY, k int, v int, at timestamptz, gone timestamptz, local timestamp, day date);
     CREATE TABLE f (k int, v int, at timestamptz); CREATE TABLE g (k int PRIMARY KEY, name text);
     CREATE INDEX ON e (at); INSERT INTO g SELECT i, 'g' || i FROM generate_series(0, 3) AS i;
     CREATE VIEW ahead AS SELECT * FROM e WHERE at > now();";

/// Rows of which one is passed in every 20 milliseconds, for a second from now on, and some that
/// are passed, or never are.
const ROWS: &str = "INSERT INTO e SELECT i, i % 4, i, at, at + interval '200 ms', at, at::date
         FROM generate_series(-20, 50) AS i, LATERAL (SELECT clock_timestamp() + i * interval '20 ms') AS l (at);
     INSERT INTO e VALUES (100, 1, 5, NULL, NULL, NULL, NULL), (101, 1, 6, 'infinity', 'infinity', 'infinity', 'infinity'),
         (102, NULL, 7, '-infinity', NULL, '-infinity', '-infinity'), (103, 2, NULL, now(), 'infinity', now(), now());
     INSERT INTO f SELECT k, v % 5, at FROM e; INSERT INTO f SELECT k, v % 5, at FROM e WHERE id % 2 = 0";

/// Whether all of it is passed, and nothing that a condition below looks back to any more.
const PASSED: &str = "SELECT clock_timestamp() > coalesce(max(at), '-infinity') + interval '2 s' FROM (
     SELECT at FROM e UNION ALL SELECT gone FROM e UNION ALL SELECT at FROM f) AS every WHERE at < 'infinity'";

/// Views follow the clock from one moment to the next, each by what changed alone, until it has
/// passed all rows.
async fn check_changes(queries: &[&str], changes: &[&str]) {
    for version in [15, 18] {
        let mut world = World::new(version, TABLES).await;
        for query in queries {
            world.view(query).await;
        }
        let mut all = world.apply_change(ROWS).await;
        let mut changes = changes.iter();
        while !has_passed(&world).await {
            let change = changes.next();
            all.extend(world.apply_change(change.unwrap_or(&"")).await);
        }
        assert!(all.iter().sum::<i64>() > 0);
        for change in changes {
            world.apply_change(change).await;
        }
        wait_until(&world.client, PASSED).await;
        world.apply_change("").await;
        for done in world.refresh().await {
            assert!(done.is_unchanged && changed_row_count(&done) == 0, "{done:?}");
        }
    }
}

async fn has_passed(world: &World) -> bool {
    world.client.query_one(PASSED, &[]).await.unwrap().get(0)
}

/// Changes while time passes.
const CHANGES: [&str; 7] = [
    "UPDATE e SET at = at + interval '100 ms', v = v + 1 WHERE id % 3 = 0",
    "INSERT INTO e SELECT id + 1000, k, v, at, gone, local, day FROM e; INSERT INTO f TABLE f",
    "BEGIN; DELETE FROM e WHERE id % 5 = 0; UPDATE f SET at = clock_timestamp() + interval '50 ms' WHERE v = 2; COMMIT",
    "UPDATE e SET at = NULL WHERE id % 7 = 0; UPDATE g SET name = name || 'x'; DELETE FROM g WHERE k = 3",
    "UPDATE e SET k = (k + 1) % 4, gone = clock_timestamp() WHERE id % 2 = 0",
    "INSERT INTO g VALUES (3, 'back'); UPDATE f SET k = NULL WHERE v = 1; UPDATE e SET day = day - 1",
    "DELETE FROM f WHERE v = 3; UPDATE e SET at = gone WHERE at IS NULL",
];

#[tokio::test]
async fn rows_fall_out_and_come_in() {
    let queries = [
        "SELECT id, v, at FROM e WHERE at > now()",
        "SELECT id, v FROM e WHERE at <= CURRENT_TIMESTAMP AND k = 1",
        "SELECT k, v FROM f WHERE at > now() - interval '100 ms'",
        "SELECT id FROM e WHERE at BETWEEN now() - interval '100 ms' AND now() + interval '100 ms'",
        "SELECT id FROM e WHERE at NOT BETWEEN now() - interval '100 ms' AND now()",
        "SELECT id, at FROM e WHERE at <= now() AND gone > now()",
        "SELECT id FROM e WHERE gone IS NULL OR gone > transaction_timestamp() OR v = 3",
        "SELECT id FROM e WHERE NOT (at > now() AND v > 2)",
        "SELECT id FROM e WHERE CASE WHEN v % 2 = 0 THEN at > now() ELSE at < now() - interval '50 ms' END",
        "SELECT id FROM e WHERE (at > now()) = (v % 2 = 0)",
        "SELECT id FROM e WHERE (at > now()) IS NOT TRUE",
        "SELECT id FROM e WHERE now() > at + v * interval '1 ms'",
        "SELECT id FROM e WHERE extract(epoch FROM at) < extract(epoch FROM now()) + 0.05",
        "SELECT id FROM e WHERE date_trunc('second', at) = date_trunc('second', now())",
        "SELECT id FROM e WHERE at <> CURRENT_TIMESTAMP(0) AND at > CURRENT_TIMESTAMP(0) - interval '1 s'",
        "SELECT id FROM e WHERE local > LOCALTIMESTAMP",
        "SELECT id FROM e WHERE at AT TIME ZONE 'Asia/Tokyo' < now() AT TIME ZONE 'Asia/Tokyo'",
    ];
    check_changes(&queries, &[]).await;
    check_changes(&queries, &CHANGES).await;
}

#[tokio::test]
async fn rows_of_joins_and_subqueries() {
    let queries = [
        "SELECT e.id, g.name FROM e JOIN g ON g.k = e.k WHERE e.at > now()",
        "SELECT e.id, g.name FROM e JOIN g ON g.k = e.k AND e.at > now() AND e.v > 1",
        "SELECT e.id, f.v FROM e JOIN f ON f.k = e.k AND f.v = e.v WHERE e.at > now() AND f.at < now() + interval '200 ms'",
        "SELECT e.id, x.v FROM e LEFT JOIN (SELECT k, v FROM f WHERE at > now()) AS x ON x.k = e.k AND x.v = e.v",
        "SELECT e.id, g.name FROM g LEFT JOIN e ON g.k = e.k WHERE e.at < now()",
        "SELECT x.id, y.v FROM (SELECT id, k FROM e WHERE at > now()) AS x FULL JOIN (SELECT k, v FROM f WHERE at <= now()) AS y ON y.k = x.id % 4",
        "SELECT g.k FROM g WHERE EXISTS (SELECT FROM e WHERE e.k = g.k AND e.at > now())",
        "SELECT e.id FROM e WHERE NOT EXISTS (SELECT FROM f WHERE f.k = e.k AND f.v = e.v AND f.at > now() - interval '100 ms')",
        "SELECT e.id FROM e WHERE e.at > now() AND e.k IN (SELECT f.k FROM f WHERE f.at > now() AND f.v < 3)",
        "SELECT g.k FROM g WHERE g.k NOT IN (SELECT e.k FROM e WHERE e.at > now() AND e.k IS NOT NULL)",
        "SELECT e.id FROM e WHERE e.at > now() - interval '10 ms' AND EXISTS (SELECT FROM g WHERE g.k = e.k)",
        "SELECT g.k, (SELECT max(e.v) FROM e WHERE e.k = g.k AND e.at > now()) AS m FROM g",
        "SELECT g.k, x.id FROM g CROSS JOIN LATERAL (SELECT e.id FROM e WHERE e.k = g.k AND e.at > now() ORDER BY e.at, e.id LIMIT 2) AS x",
        "SELECT g.k, ARRAY(SELECT f.v FROM f WHERE f.v > g.k AND f.at <= now() ORDER BY f.v) AS a FROM g",
        "SELECT e.id FROM e WHERE EXISTS (SELECT FROM g WHERE g.k = e.k AND e.at > now())",
        "SELECT x.id, x.v, y.id AS j FROM (SELECT * FROM e WHERE at > now()) AS x JOIN (SELECT * FROM e WHERE at > now()) AS y ON y.id = x.id + 1",
    ];
    check_changes(&queries, &CHANGES).await;
}

#[tokio::test]
async fn stages_above_and_below() {
    let queries = [
        "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM e WHERE at > now() GROUP BY k",
        "SELECT count(*) AS n, avg(v) AS a FROM f WHERE at BETWEEN now() - interval '100 ms' AND now()",
        "SELECT k, m FROM (SELECT k, max(at) AS m FROM e WHERE at < 'infinity' GROUP BY k) AS x WHERE m > now()",
        "SELECT v, n FROM (SELECT v, max(at) AS m, count(*) AS n FROM e WHERE v < 40 GROUP BY v) AS x WHERE m > now() ORDER BY n",
        "SELECT DISTINCT k, v FROM f WHERE at > now()",
        "SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM e WHERE at > now()",
        "SELECT id, r FROM (SELECT id, at, row_number() OVER (PARTITION BY k ORDER BY at, id) AS r FROM e) AS x WHERE at > now()",
        "SELECT id, at FROM e WHERE at > now() ORDER BY at, id LIMIT 3",
        "SELECT DISTINCT ON (k) k, id FROM e WHERE at <= now() ORDER BY k, at DESC, id",
        "SELECT k FROM e WHERE at > now() UNION ALL SELECT k FROM f WHERE at <= now()",
        "SELECT k, v FROM e WHERE at > now() EXCEPT ALL SELECT k, v FROM f WHERE at > now() + interval '100 ms'",
        "SELECT k, v FROM e WHERE at > now() UNION SELECT k, v FROM f",
        "SELECT k, v, count(*) AS n FROM e WHERE at > now() GROUP BY ROLLUP (k, v)",
        "WITH x AS (SELECT * FROM e WHERE at > now()) SELECT x.id, y.id AS j FROM x JOIN x AS y ON y.v = x.v + 1",
        "WITH RECURSIVE r (id) AS (SELECT id FROM e WHERE id % 5 = 0 AND at > now() UNION SELECT e.id FROM r JOIN e ON e.id = r.id + 1 WHERE e.at > now()) SELECT id FROM r",
        "WITH RECURSIVE r (k, n) AS (SELECT k, 0 FROM e WHERE at > now() UNION ALL SELECT g.k, r.n + 1 FROM r JOIN g ON g.k = r.k + 1 AND r.n < 2 WHERE g.k IN (SELECT f.k FROM f WHERE f.at <= now())) SELECT k, n FROM r",
        "SELECT id, u FROM e CROSS JOIN LATERAL unnest(ARRAY[v, k]) AS l (u) WHERE at > now()",
        "SELECT k, string_agg(id::text, ',' ORDER BY id) AS s FROM e WHERE at > now() GROUP BY k HAVING count(*) > 2",
    ];
    check_changes(&queries, &CHANGES).await;
}

/// A view of PostgreSQL's is read as what it is.
#[tokio::test]
async fn views_with_the_clock_in_them() {
    let expected = "SELECT k, count(*) AS n FROM e WHERE v > 3 AND at > (SELECT clock FROM egret.view) GROUP BY k";
    for version in [15, 18] {
        let mut world = World::new(version, TABLES).await;
        world.view("SELECT k, count(*) AS n FROM ahead WHERE v > 3 GROUP BY k").await;
        world.execute(ROWS).await;
        let mut all = 0;
        while !has_passed(&world).await {
            let World { client, views, .. } = &mut world;
            let done = views[0].refresh(client).await;
            views[0].assert_matches(client, expected).await;
            assert!(!done.is_full);
            all += changed_row_count(&done);
        }
        assert!(all > 4);
    }
}

const DAYS: &str = "CREATE TABLE d (id int PRIMARY KEY, day date, at timestamptz, opens time)";

/// Rows of nine days before this one and after it.
const EACH_DAY: &str = "INSERT INTO d SELECT i, CURRENT_DATE + i, now() + i * interval '1 d', time '12:00' + i * interval '1 h' FROM generate_series(-9, 9) AS i;
     INSERT INTO d VALUES (20, NULL, NULL, NULL), (21, 'infinity', '-infinity', '24:00'), (22, '-infinity', 'infinity', '00:00')";

#[tokio::test]
async fn days_and_hours() {
    for version in [15, 18] {
        // A view has the zone of the session that made it.
        let mut world = World::new(version, DAYS).await;
        world.execute("SET TimeZone = 'Pacific/Kiritimati'").await;
        for query in [
            "SELECT id, day FROM d WHERE day >= CURRENT_DATE - 7",
            "SELECT id FROM d WHERE day = CURRENT_DATE",
            "SELECT id FROM d WHERE day <> CURRENT_DATE",
            "SELECT id FROM d WHERE at::date BETWEEN CURRENT_DATE - 1 AND CURRENT_DATE + 1",
            "SELECT id FROM d WHERE at >= CURRENT_DATE",
            "SELECT id FROM d WHERE day < now()",
            "SELECT id FROM d WHERE at >= date_trunc('day', now()) - interval '2 days'",
            "SELECT day, count(*) AS n FROM d WHERE day > CURRENT_DATE + 1 GROUP BY day",
            "SELECT id FROM d WHERE opens <= LOCALTIME",
            "SELECT id FROM d WHERE opens > CURRENT_TIME::time",
        ] {
            world.view(query).await;
        }
        // As empty some days ago, and in some, as now.
        for shift in ["- interval '3 d 5 h'", "+ interval '2 d 7 h'"] {
            world
                .execute(&format!("DELETE FROM d; UPDATE egret.view SET clock = clock {shift} WHERE NOT EXISTS (SELECT FROM d)"))
                .await;
            world.execute("SET TimeZone = 'America/Los_Angeles'").await;
            world.execute(EACH_DAY).await;
            let mut all = Vec::new();
            for view in &world.views {
                all.push(view.refresh(&mut world.client).await);
            }
            world.execute("SET TimeZone = 'Pacific/Kiritimati'").await;
            for (view, done) in world.views.iter().zip(all) {
                assert!(!done.is_full && changed_row_count(&done) > 0, "{}: {done:?}", view.query);
                view.assert_matches_query(&world.client).await;
            }
            world.apply_change("DELETE FROM d").await;
        }
    }
}

#[tokio::test]
async fn a_day_ends() {
    for version in [15, 18] {
        let mut world = World::new(version, &format!("{DAYS}; SET TimeZone = 'UTC'")).await;
        world.execute(EACH_DAY).await;
        // A day of its own, which ends in a moment.
        let left = "date_trunc('day', now()) + interval '1 day' - now() - interval '1 s'";
        let left = world.text(left).await.unwrap();
        let today = format!("(now() + interval '{left}')::date");
        for condition in ["day = $", "day >= $ - 7", "at > $", "day < $"] {
            let condition = condition.replace('$', &today);
            world.view(&format!("SELECT id FROM d WHERE {condition}")).await;
        }
        let day = |of: &str| format!("({of} + interval '{left}')::date");
        let clocks = "SELECT clock FROM egret.view ORDER BY id";
        let before = world.client.query(clocks, &[]).await.unwrap();
        let is_over = format!(
            "SELECT {} > {}",
            day("clock_timestamp()"),
            day("(SELECT min(clock) FROM egret.view)")
        );
        wait_until(&world.client, &is_over).await;
        let all = world.apply_change("").await;
        let ended = format!("SELECT {} <> {}", day("$1::timestamptz"), day("now()"));
        for (rows, before) in all.into_iter().zip(before) {
            let before: SystemTime = before.get(0);
            let row = world.client.query_one(&ended, &[&before]).await.unwrap();
            assert_eq!(rows > 0, row.get::<_, bool>(0));
        }
    }
}

/// What a row was changed to may be passed by the time at which that is seen. And clocks are set
/// back.
#[tokio::test]
async fn a_boundary_passes_a_row_that_changes() {
    for version in [15, 18] {
        for shift in ["- interval '1 hour'", "+ interval '1 hour'"] {
            let mut world = World::new(version, TABLES).await;
            for query in [
                "SELECT id, v FROM e WHERE at > now()",
                "SELECT id, v FROM e WHERE at <= now()",
                "SELECT id FROM e WHERE at BETWEEN now() - interval '40 m' AND now() + interval '40 m'",
                "SELECT k, count(*) AS n FROM e WHERE at < now() GROUP BY k",
                "SELECT k FROM f WHERE at > now()",
                "SELECT e.id, f.v FROM e JOIN f ON f.k = e.k WHERE e.at > now() AND f.at > now()",
            ] {
                world.view(query).await;
            }
            // They are as empty then as now.
            world.execute(&format!("UPDATE egret.view SET clock = clock {shift}")).await;
            let minutes = "generate_series(-120, 120, 10) AS i";
            world
                .apply_change(&format!(
                    "INSERT INTO e SELECT i, i % 4, i, now() + i * interval '1 m' FROM {minutes};
                     INSERT INTO f SELECT i % 4, i, now() + i * interval '1 m' FROM {minutes}"
                ))
                .await;
            for (change, at) in [
                ("UPDATE e SET at = at + interval '30 m'", "'1 s'"),
                ("DELETE FROM f WHERE v > 0", "'3 m'"),
            ] {
                // No row is between what it was and what it is said to be.
                world
                    .execute(&format!("UPDATE egret.view SET clock = clock + interval {at}"))
                    .await;
                world.apply_change(change).await;
            }
        }
    }
}

/// How far a view has come is one: the snapshot, and the moment.
#[tokio::test]
async fn what_fails_comes_no_further_and_what_is_not_known_is_computed_anew() {
    for version in [15, 18] {
        let mut world = World::new(version, TABLES).await;
        world.view("SELECT id, 10 / v AS w FROM e WHERE at > now()").await;
        let reached = "(SELECT snapshot::text || ' ' || clock FROM egret.view)";
        let before = world.text(reached).await;
        assert!(before.is_some());
        world.execute(&format!("{ROWS}; UPDATE e SET v = 0, at = 'infinity' WHERE id = 5")).await;
        let failed = world.views[0].refreshable.refresh(&mut world.client).await;
        assert!(failed.is_err());
        world.execute("ROLLBACK").await;
        assert_eq!(world.text(reached).await, before);
        assert_eq!(world.apply_change("UPDATE e SET v = NULL WHERE v = 0").await.len(), 1);
        let first = world.text(reached).await;
        assert_ne!(first, before);
        // Time alone: it is written how far that has come, and nothing else.
        world.execute("DELETE FROM e WHERE at < 'infinity'").await;
        world.refresh().await;
        let size = "(SELECT count(*) FROM v1)";
        let rows = world.text(size).await;
        let done = world.refresh().await.remove(0);
        assert!(done.is_unchanged && !done.is_full, "{done:?}");
        assert_eq!(world.text(size).await, rows);
        assert_ne!(world.text(reached).await, first);
        world.execute("UPDATE egret.view SET clock = NULL").await;
        let done = world.refresh().await.remove(0);
        assert!(done.is_full && done.reason.contains("is unknown"), "{done:?}");
        world.execute("UPDATE egret.view SET snapshot = NULL").await;
        assert!(world.refresh().await.remove(0).is_full);
        assert!(!world.refresh().await.remove(0).is_full);
    }
}
