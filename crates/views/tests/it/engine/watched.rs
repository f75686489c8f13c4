//! What is told of refreshes: their plans and how many are remembered; and what is noticed of
//! tables between them.

use super::*;
use crate::world::wait_until;

#[tokio::test]
async fn the_plans_of_a_refresh_are_kept() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        let role = format!("watcher_{}", rig.database.name);
        rig.execute(TABLES).await;
        rig.execute(&format!(
            "CREATE ROLE {role}; GRANT CREATE ON SCHEMA public TO {role}; GRANT SELECT ON t, u TO {role}"
        ))
        .await;
        let query = "SELECT u.name, sum(t.v) AS s FROM t JOIN u USING (g) GROUP BY u.name";
        let theirs = NewView { owner: Some(role.clone()), ..new_view("theirs", query) };
        rig.create(new_view("sums", query)).await.unwrap();
        rig.create(theirs).await.unwrap();
        rig.create(new_view("above", "SELECT count(*) AS n FROM sums WHERE s > 100"))
            .await
            .unwrap();
        rig.execute("UPDATE t SET v = v + 1000 WHERE id <= 5").await;
        for name in ["above", "theirs"] {
            let done = rig.views.refresh_explained(&view_ref(name)).await.unwrap();
            let plans = done.plans.unwrap();
            // What it came to is told, and that it was done with the few changes.
            assert!(plans.contains("actual time") && plans.contains("Execution Time"), "{plans}");
        }
        // Each statement was done twice, and counts once.
        rig.verify(&["sums", "above", "theirs"]).await;
        for name in ["sums", "above", "theirs"] {
            let history = rig.views.history(&view_ref(name), 10).await.unwrap();
            assert!(history[0].plans.is_some(), "{name}: {history:?}");
            assert_eq!(history[0].outcome, "incremental");
        }
        rig.execute("DELETE FROM t WHERE id = 7").await;
        assert_eq!(rig.refresh("sums").await.plans, None);
        let nothing = rig.views.refresh_explained(&view_ref("sums")).await.unwrap();
        assert_eq!((nothing.outcome.as_str(), nothing.plans), ("nothing", None));
        rig.views.uninstall(None, true).await.unwrap();
        rig.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    }
}

#[tokio::test]
async fn as_many_refreshes_are_remembered_as_was_said() {
    let config = ViewsConfig { history_max: 3, ..ViewsConfig::default() };
    let rig = Rig::with_config(18, config).await;
    rig.execute(TABLES).await;
    rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
    for id in 1..=6 {
        rig.execute(&format!("UPDATE t SET v = v + 1 WHERE id = {id}")).await;
        rig.refresh("sums").await;
    }
    // Surplus reports are removed in the background.
    wait_until(&rig.client, "SELECT count(*) = 3 FROM egret.view_refresh").await;
}

/// How views stand is not looked at as a whole where no row of the catalogue has another version:
/// everything that matters for that has to make one.
#[tokio::test]
async fn what_happens_to_a_table_between_refreshes_is_noticed() {
    let full = "full";
    for (doing, outcome) in [
        ("TRUNCATE t", full),
        ("ALTER TABLE t DISABLE TRIGGER ALL; INSERT INTO t VALUES (901, 1, 1)", full),
        ("ALTER TABLE t ALTER COLUMN v TYPE bigint", "view_refresh_failed"),
        ("ALTER TABLE t ADD COLUMN more int DEFAULT 5", "nothing"),
        ("ALTER TABLE t DROP COLUMN spare", "nothing"),
        ("ALTER TABLE parted DROP COLUMN spare, ADD COLUMN more text", "nothing"),
        ("VACUUM FULL t", full),
        ("CREATE OR REPLACE VIEW plain AS SELECT id, g, v + 1 AS v FROM o", full),
        (
            "INSERT INTO parted (id, g, v) SELECT i, i, i FROM generate_series(10, 12) AS i",
            "incremental",
        ),
        (
            "CREATE TABLE late PARTITION OF parted FOR VALUES FROM (100) TO (200); INSERT INTO late (id, g, v) VALUES (150, 1, 1)",
            full,
        ),
        ("ALTER TABLE parted DETACH PARTITION early", full),
        ("TRUNCATE early", full),
    ] {
        let rig = Rig::new(18).await;
        rig.execute(TABLES).await;
        rig.execute(
            "ALTER TABLE t ADD COLUMN spare int; CREATE TABLE o (id int, g int, v int); \
             CREATE VIEW plain AS SELECT id, g, v FROM o; \
             CREATE TABLE parted (spare int, id int PRIMARY KEY, g int, v int) PARTITION BY RANGE (id); \
             CREATE TABLE early PARTITION OF parted FOR VALUES FROM (0) TO (100); \
             INSERT INTO parted (id, g, v) SELECT i, i, i FROM generate_series(1, 9) AS i",
        )
        .await;
        let read =
            match (doing.contains("plain"), doing.contains("parted") || doing.contains("early")) {
                (true, _) => "plain",
                (_, true) => "parted",
                _ => "t",
            };
        let query = format!("SELECT g, sum(v) AS s FROM {read} GROUP BY g");
        rig.create(new_view("sums", &query)).await.unwrap();
        // What is known of it is used from here on.
        rig.execute("INSERT INTO t VALUES (500, 5, 5)").await;
        for _ in 0..3 {
            rig.refresh("sums").await;
        }
        rig.execute(doing).await;
        let found = match rig.views.refresh(&view_ref("sums")).await {
            Ok(done) => done.outcome,
            Err(error) => error.code().to_owned(),
        };
        assert_eq!(found, outcome, "{doing}");
        if outcome != "view_refresh_failed" {
            rig.verify(&["sums"]).await;
        }
    }
}
