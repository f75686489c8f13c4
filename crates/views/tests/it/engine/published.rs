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
        rig.execute(TABLES).await;
        rig.execute("CREATE PUBLICATION all_tables FOR ALL TABLES").await;
        rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
        let at_once = NewView {
            mode: Mode::Immediate,
            schedule: None,
            ..new_view("named", "SELECT t.id, u.name FROM t JOIN u USING (g)")
        };
        rig.create(at_once).await.unwrap();
        assert_eq!(rig.query_number(NOT_IDENTIFIED).await, 0);
        rig.execute("UPDATE t SET v = v + 1, g = (g + 1) % 5; DELETE FROM t WHERE id < 50").await;
        let done = rig.refresh("sums").await;
        assert_eq!(done.outcome, "incremental", "{done:?}");
        rig.verify(&["sums", "named"]).await;
        rig.views.repair(&view_ref("sums"), &MakerRights::administrator()).await.unwrap();
        assert_eq!(rig.query_number(NOT_IDENTIFIED).await, 0);
        for name in ["named", "sums"] {
            rig.views.drop(&view_ref(name)).await.unwrap();
        }
        assert_eq!(rig.views.uninstall(None, false).await.unwrap().1, 0);
    }
}

#[tokio::test]
async fn tables_of_an_older_egret_get_an_identity() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    let sums = "SELECT g, sum(v) AS s FROM t GROUP BY g";
    rig.create(new_view("first", sums)).await.unwrap();
    rig.execute(
        "DO $$ DECLARE made regclass; BEGIN
             FOR made IN SELECT oid FROM pg_class WHERE relnamespace = 'egret'::regnamespace AND relreplident = 'f' LOOP
                 EXECUTE format('ALTER TABLE %s REPLICA IDENTITY DEFAULT', made);
             END LOOP;
         END $$",
    )
    .await;
    assert!(rig.query_number(NOT_IDENTIFIED).await > 0);
    rig.create(new_view("second", sums)).await.unwrap();
    assert_eq!(rig.query_number(NOT_IDENTIFIED).await, 0);
}
