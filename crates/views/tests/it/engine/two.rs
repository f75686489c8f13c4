//! Two Egrets over one database.

use egret_views::ViewsConfig;
use egret_views::model::{Alteration, Mode, ReadableViews};

use super::{Rig, TABLES, error_code, new_engine, new_view, view_ref};

#[tokio::test]
async fn what_another_does_with_a_view_is_seen_where_it_was_known_a_moment_ago() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    let other = new_engine(&rig.database, ViewsConfig::default());
    let sums = "SELECT g, sum(v) AS s FROM t GROUP BY g";
    rig.create(new_view("sums", sums)).await.unwrap();
    assert_eq!(rig.refresh("sums").await.outcome, "nothing");
    // Suspended, and made active again.
    let activity = |is_active| Alteration { is_active: Some(is_active), ..Alteration::default() };
    other.alter(&view_ref("sums"), activity(false), ReadableViews::All).await.unwrap();
    assert_eq!(error_code(rig.views.refresh(&view_ref("sums")).await), "view_suspended");
    other.alter(&view_ref("sums"), activity(true), ReadableViews::All).await.unwrap();
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    // Read by another, which is to be told.
    let above = new_view("above", "SELECT g FROM sums WHERE s > 0");
    other.create(None, above).await.unwrap();
    rig.execute("DELETE FROM t WHERE g = 1").await;
    assert_eq!(rig.refresh("sums").await.outcome, "incremental");
    other.refresh(&view_ref("above")).await.unwrap();
    rig.verify(&["sums", "above"]).await;
    other.drop(&view_ref("above")).await.unwrap();
    // Changed to another mode.
    let mode = Alteration { mode: Some(Mode::Full), ..Alteration::default() };
    other.alter(&view_ref("sums"), mode, ReadableViews::All).await.unwrap();
    rig.execute("DELETE FROM t WHERE g = 2").await;
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    // Dropped, and made with another query.
    other.drop(&view_ref("sums")).await.unwrap();
    assert_eq!(error_code(rig.views.refresh(&view_ref("sums")).await), "view_not_found");
    let counts = new_view("sums", "SELECT g, count(*) AS n FROM t GROUP BY g");
    other.create(None, counts).await.unwrap();
    rig.execute("INSERT INTO t VALUES (1000, 1, 1)").await;
    assert_eq!(rig.refresh("sums").await.outcome, "incremental");
    assert_eq!(rig.query_number("SELECT n FROM sums WHERE g = 1").await, 1);
    // All of it taken away, and made again.
    other.uninstall(None, true).await.unwrap();
    assert_eq!(error_code(rig.views.refresh(&view_ref("sums")).await), "view_not_found");
    other.create(None, new_view("sums", sums)).await.unwrap();
    rig.execute("INSERT INTO t VALUES (1001, 1, 1)").await;
    assert_eq!(rig.refresh("sums").await.outcome, "incremental");
    rig.verify(&["sums"]).await;
}
