//! What others do around views: with the tables, views and types they stand on, with triggers, and
//! in schemas that are not theirs.

use super::*;

#[tokio::test]
async fn tables_are_altered_under_views() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(new_view("kept", "SELECT id, v FROM t WHERE g = 1")).await.unwrap();
    rig.create(new_view("other", "SELECT name FROM u")).await.unwrap();
    // What a view does not need.
    rig.execute(
        "ALTER TABLE t ADD COLUMN extra text DEFAULT 'x'; UPDATE t SET v = 1000 WHERE id = 1",
    )
    .await;
    assert_eq!(rig.refresh("kept").await.outcome, "incremental");
    rig.execute("ALTER TABLE t DROP COLUMN extra; INSERT INTO t VALUES (300, 1, 3)").await;
    assert_eq!(rig.refresh("kept").await.outcome, "incremental");
    rig.verify(&["kept"]).await;
    // What it does.
    rig.execute("ALTER TABLE t ALTER COLUMN v TYPE bigint; INSERT INTO t VALUES (301, 1, 4)").await;
    assert_eq!(error_code(rig.views.refresh(&view_ref("kept")).await), "view_refresh_failed");
    let shown = rig.views.show(&view_ref("kept")).await.unwrap();
    assert_eq!(shown.state, State::Suspended);
    rig.execute("GRANT SELECT ON kept TO PUBLIC").await;
    rig.views.repair(&view_ref("kept"), &MakerRights::administrator()).await.unwrap();
    rig.verify(&["kept"]).await;
    rig.execute("INSERT INTO t VALUES (302, 1, 5000000000)").await;
    rig.verify(&["kept"]).await;
    rig.execute("DROP TABLE u").await;
    assert_eq!(error_code(rig.views.refresh(&view_ref("other")).await), "view_refresh_failed");
    let shown = rig.views.show(&view_ref("other")).await.unwrap();
    assert_eq!(shown.state, State::Suspended);
    assert!(shown.reason.unwrap().contains("does not exist"));
    assert_eq!(rig.query_number("SELECT count(*) FROM other").await, 7);
    rig.execute("CREATE TABLE u (g int, name text); INSERT INTO u VALUES (1, 'back')").await;
    rig.views.repair(&view_ref("other"), &MakerRights::administrator()).await.unwrap();
    rig.verify(&["other"]).await;
    rig.views.drop(&view_ref("other")).await.unwrap();
    rig.execute("DROP TABLE t").await;
    rig.views.drop(&view_ref("kept")).await.unwrap();
}

#[tokio::test]
async fn a_plain_view_that_is_replaced_is_read_as_it_is_now() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.execute("CREATE VIEW low AS SELECT id, g, v FROM t WHERE v < 50").await;
    let sums = "SELECT g, sum(v) AS s FROM low GROUP BY g";
    rig.create(new_view("sums", sums)).await.unwrap();
    rig.create(new_view("more", "SELECT g, s * 2 AS s FROM sums")).await.unwrap();
    rig.execute("CREATE OR REPLACE VIEW low AS SELECT id, g, v FROM t WHERE v >= 50").await;
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    rig.verify(&["sums", "more"]).await;
    rig.execute("INSERT INTO t VALUES (900, 1, 900)").await;
    assert_eq!(rig.refresh("more").await.outcome, "incremental");
    rig.verify(&["sums", "more"]).await;
    // A view that is kept fresh takes the place of a plain one.
    rig.execute("ALTER VIEW low RENAME TO others").await;
    rig.create(new_view("low", "SELECT id, g, v FROM t")).await.unwrap();
    rig.verify(&["more"]).await;
    let later = new_engine(&rig.database, ViewsConfig::default());
    let refreshed = later.refresh(&view_ref("sums")).await;
    assert_eq!(error_code(refreshed), "view_refresh_failed");
}

#[tokio::test]
async fn what_is_written_while_triggers_are_disabled_is_found() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
    rig.execute("ALTER TABLE t DISABLE TRIGGER ALL; INSERT INTO t VALUES (901, 1, 1); ALTER TABLE t ENABLE TRIGGER ALL")
        .await;
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    rig.verify(&["sums"]).await;
    rig.execute("SET session_replication_role = replica; INSERT INTO t VALUES (902, 1, 1); RESET session_replication_role")
        .await;
    assert_eq!(rig.refresh("sums").await.outcome, "incremental");
    rig.verify(&["sums"]).await;
}

#[tokio::test]
async fn no_write_fails_when_a_type_is_renamed_and_other_types_are_recorded_after_a_repair() {
    let rig = Rig::new(18).await;
    rig.execute("CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE TABLE m (id int PRIMARY KEY, mood mood, n int)")
        .await;
    rig.create(new_view("moods", "SELECT mood, count(*) AS c, max(n) AS n FROM m GROUP BY mood"))
        .await
        .unwrap();
    rig.execute("ALTER TYPE mood RENAME TO humour").await;
    let other = rig.database.connect().await;
    let insert = "INSERT INTO public.m VALUES (1, 'good', 1)";
    other.batch_execute(insert).await.unwrap();
    rig.execute(
        "ALTER TABLE m ALTER COLUMN n TYPE bigint; INSERT INTO m VALUES (2, 'bad', 5000000000)",
    )
    .await;
    assert_eq!(error_code(rig.views.refresh(&view_ref("moods")).await), "view_refresh_failed");
    rig.views.repair(&view_ref("moods"), &MakerRights::administrator()).await.unwrap();
    rig.execute("INSERT INTO m VALUES (3, 'bad', 6000000000)").await;
    assert_eq!(rig.refresh("moods").await.outcome, "incremental");
    rig.verify(&["moods"]).await;
}

#[tokio::test]
async fn operators_of_others_are_not_called_by_egrets_own_statements() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.execute(
        "CREATE FUNCTION public.trap(numeric, int) RETURNS numeric LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$trapped$$; END';
         CREATE OPERATOR public.* (FUNCTION = public.trap, LEFTARG = numeric, RIGHTARG = int)",
    )
    .await;
    rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
    rig.execute("INSERT INTO t VALUES (903, 1, 1)").await;
    rig.refresh("sums").await;
    assert_eq!(rig.views.list(None).await.unwrap().len(), 1);
    assert_eq!(rig.views.history(&view_ref("sums"), 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_schema_that_somebody_else_has_made_is_not_read() {
    let rig = Rig::new(18).await;
    let role = format!("other_{}", rig.database.name);
    rig.execute(&format!(
        "CREATE ROLE {role}; CREATE SCHEMA egret AUTHORIZATION {role}; CREATE TABLE egret.view (id bigint); \
         ALTER TABLE egret.view OWNER TO {role}"
    ))
    .await;
    assert!(rig.views.list(None).await.unwrap().is_empty());
    let there = ViewRef { database: Some(rig.database.name.clone()), ..view_ref("any") };
    let shown = rig.views.show(&there).await;
    assert_eq!(error_code(shown), "postgres_foreign_schema");
    rig.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_lock_that_is_held_while_a_view_is_loaded_does_not_suspend_it() {
    let config = ViewsConfig { lock_timeout: ConfigDuration::ms(10), ..ViewsConfig::default() };
    let rig = Rig::with_config(18, config.clone()).await;
    rig.execute(TABLES).await;
    rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
    let later = new_engine(&rig.database, config);
    rig.execute("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE; UPDATE t SET v = v + 1").await;
    let refused = later.refresh(&view_ref("sums")).await.unwrap_err();
    assert!(refused.is_lock_not_available(), "{refused:?}");
    rig.execute("COMMIT").await;
    assert_eq!(later.refresh(&view_ref("sums")).await.unwrap().outcome, "incremental");
    rig.verify(&["sums"]).await;
}

/// A column that has the name of another is not that one.
#[tokio::test]
async fn a_column_that_takes_the_name_of_another_is_read_anew() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
    rig.execute("ALTER TABLE t DROP COLUMN v; ALTER TABLE t ADD v int DEFAULT 7").await;
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    rig.verify(&["sums"]).await;
    rig.execute("INSERT INTO t VALUES (980, 1, 1)").await;
    assert_eq!(rig.refresh("sums").await.outcome, "incremental");
    rig.verify(&["sums"]).await;
    // Rows of such are rows of the table, and no trigger tells of them.
    rig.execute("CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (1, 2, 3)").await;
    assert_eq!(error_code(rig.views.refresh(&view_ref("sums")).await), "view_refresh_failed");
    let report = rig.views.show(&view_ref("sums")).await.unwrap();
    assert_eq!(report.state, State::Suspended);
}

/// Alterations that creation would refuse are detected later, and a view whose source cannot be
/// watched does not claim to be current.
#[tokio::test]
async fn tables_that_become_what_cannot_be_watched_suspend_their_views() {
    for change in [
        "CREATE TABLE parent (id int, g int, v int); ALTER TABLE t INHERIT parent",
        "CREATE TABLE whole (id int NOT NULL, g int, v int) PARTITION BY LIST (g); ALTER TABLE whole ATTACH PARTITION t DEFAULT",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    ] {
        let rig = Rig::new(18).await;
        rig.execute(TABLES).await;
        rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
        rig.execute(change).await;
        assert_eq!(
            error_code(rig.views.refresh(&view_ref("sums")).await),
            "view_refresh_failed",
            "{change}"
        );
        let report = rig.views.show(&view_ref("sums")).await.unwrap();
        assert_eq!(report.state, State::Suspended, "{change}");
    }
}

#[tokio::test]
async fn a_query_that_is_computed_as_a_whole_is_when_columns_are_exchanged() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(NewView {
        mode: Mode::Full,
        ..new_view("ranks", "SELECT id, g, v, tableoid > 0 AS r FROM t")
    })
    .await
    .unwrap();
    rig.execute(
        "ALTER TABLE t RENAME g TO x; ALTER TABLE t RENAME v TO g; ALTER TABLE t RENAME x TO v",
    )
    .await;
    assert_eq!(rig.refresh("ranks").await.outcome, "full");
    rig.verify(&["ranks"]).await;
}

/// While locks are held, locks on further tables are waited for only briefly: a deadlock would end
/// a writer to all of them.
#[tokio::test]
async fn a_view_is_made_and_refreshed_while_others_write_in_any_order() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    let writer = rig.database.connect().await;
    writer
        .batch_execute("SET search_path = public; BEGIN; INSERT INTO u VALUES (70, 'seventy')")
        .await
        .unwrap();
    let views = rig.views.clone();
    let made = tokio::spawn(async move {
        let query = "SELECT t.id, u.name FROM t JOIN u ON u.g = t.g";
        views.create(None, new_view("named", query)).await
    });
    crate::world::wait_until_blocked(&rig.client).await;
    writer.batch_execute("INSERT INTO t VALUES (700, 70, 1); COMMIT").await.unwrap();
    made.await.unwrap().unwrap();
    rig.verify(&["named"]).await;
    writer.batch_execute("BEGIN; TRUNCATE u").await.unwrap();
    let views = rig.views.clone();
    let refreshed = tokio::spawn(async move { views.verify(&view_ref("named")).await });
    crate::world::wait_until_blocked(&rig.client).await;
    writer.batch_execute("TRUNCATE t; COMMIT").await.unwrap();
    refreshed.await.unwrap().unwrap();
    assert_eq!(rig.query_number("SELECT count(*) FROM named").await, 0);
}
