//! Databases whose tables are all published.

use super::*;

/// Tables of schema `egret` from which PostgreSQL allows no deletion while all tables are
/// published.
const NOT_IDENTIFIED: &str = "SELECT count(*) FROM pg_class AS c WHERE relnamespace = 'egret'::regnamespace \
     AND relkind = 'r' AND relpersistence = 'p' AND (relreplident = 'n' OR relreplident = 'd' \
     AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary))";

#[tokio::test]
async fn views_live_and_go_where_all_tables_are_published() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.run(TABLES).await;
        rig.run("CREATE PUBLICATION all_tables FOR ALL TABLES")
            .await;
        rig.create(view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g"))
            .await
            .unwrap();
        let at_once = NewView {
            mode: Mode::Immediate,
            schedule: None,
            ..view("named", "SELECT t.id, u.name FROM t JOIN u USING (g)")
        };
        rig.create(at_once).await.unwrap();
        assert_eq!(rig.number(NOT_IDENTIFIED).await, 0);
        rig.run("UPDATE t SET v = v + 1, g = (g + 1) % 5; DELETE FROM t WHERE id < 50")
            .await;
        let done = rig.refresh("sums").await;
        assert_eq!(done.outcome, "incremental", "{done:?}");
        rig.verify(&["sums", "named"]).await;
        rig.views
            .repair(&at("sums"), &MakerRights::all())
            .await
            .unwrap();
        assert_eq!(rig.number(NOT_IDENTIFIED).await, 0);
        for name in ["named", "sums"] {
            rig.views.drop(&at(name)).await.unwrap();
        }
        assert_eq!(rig.views.uninstall(None, false).await.unwrap().1, 0);
    }
}

#[tokio::test]
async fn tables_of_an_older_egret_get_an_identity() {
    let rig = Rig::new(18).await;
    rig.run(TABLES).await;
    let sums = "SELECT g, sum(v) AS s FROM t GROUP BY g";
    rig.create(view("first", sums)).await.unwrap();
    rig.run(
        "DO $$ DECLARE made regclass; BEGIN
             FOR made IN SELECT oid FROM pg_class WHERE relnamespace = 'egret'::regnamespace AND relreplident = 'f' LOOP
                 EXECUTE format('ALTER TABLE %s REPLICA IDENTITY DEFAULT', made);
             END LOOP;
         END $$",
    )
    .await;
    assert!(rig.number(NOT_IDENTIFIED).await > 0);
    rig.create(view("second", sums)).await.unwrap();
    assert_eq!(rig.number(NOT_IDENTIFIED).await, 0);
}
