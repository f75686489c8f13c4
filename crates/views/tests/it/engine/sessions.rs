//! Requests that wait for a refresh leave their sessions to others, and views that are gone leave
//! none.

use std::future::Future;

use egret_base::settings::ConfigDuration;
use egret_postgres::PostgresConfig;
use egret_postgres::databases::request_sessions;
use egret_views::FollowMode;
use egret_views::model::{Alteration, ViewReport};

use super::*;
use crate::world::{AdvisoryGate, GATE, wait_until_blocked};

/// A rig whose requests have one session together.
async fn rig_with_one_session() -> Rig {
    let database = TestDatabase::create(18).await;
    let sessions =
        request_sessions(&PostgresConfig { pool_connections_max: 1, ..PostgresConfig::default() });
    let options = Options {
        config: ViewsConfig {
            // Longer than the timeouts of PostgreSQL can be.
            lock_timeout: ConfigDuration::secs(30 * 86_400),
            refresh_timeout: ConfigDuration::secs(30 * 86_400),
            ..ViewsConfig::default()
        },
        databases: Databases::single(database.connection()).with_sessions(sessions),
        clock: Arc::new(SystemClock),
        task_publisher: None,
    };
    let client = database.connect().await;
    let set = "SET search_path = public; SET client_min_messages = warning";
    client.batch_execute(set).await.unwrap();
    let rig = Rig { views: Views::new(options, &mut Registry::default()), database, client };
    rig.execute(TABLES).await;
    rig.execute(GATE).await;
    rig
}

/// While a request waits for a refresh, another one is answered.
async fn check_waits_without_session(
    rig: &Rig,
    request: impl Future<Output = Result<ViewReport, ViewsError>> + Send + 'static,
) {
    let gate = AdvisoryGate::shut(&rig.database).await;
    let waiting = tokio::spawn(request);
    wait_until_blocked(&rig.client).await;
    rig.views.list(None).await.unwrap();
    assert!(!waiting.is_finished());
    gate.open().await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_waits_for_a_refresh_leaves_its_session_to_others() {
    let rig = rig_with_one_session().await;
    let gated = new_view("gated", "SELECT id, gate(v) AS v FROM t");
    let views = rig.views.clone();
    check_waits_without_session(&rig, async move { views.create(None, gated).await }).await;
    let views = rig.views.clone();
    check_waits_without_session(&rig, async move {
        views.repair(&view_ref("gated"), &MakerRights::administrator()).await
    })
    .await;
    let immediate = Alteration { mode: Some(Mode::Immediate), ..Alteration::default() };
    let views = rig.views.clone();
    check_waits_without_session(&rig, async move {
        views.alter(&view_ref("gated"), immediate, ReadableViews::All).await
    })
    .await;
    rig.verify(&["gated"]).await;
}

#[tokio::test]
async fn a_view_that_cannot_be_filled_is_gone_when_its_maker_is_told() {
    let rig = rig_with_one_session().await;
    let refused = rig.create(new_view("shares", "SELECT id, v / (v - v) AS share FROM t")).await;
    assert_eq!(error_code(refused), "view_not_filled");
    assert_eq!(rig.views.list(None).await.unwrap().len(), 0);
    assert_eq!(rig.query_number("SELECT count(*) FROM egret.view").await, 0);
}

/// Waits until the test's own session is the only one in the database.
async fn until_alone(rig: &Rig) {
    let sessions = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    eventually("other sessions end", async || {
        let others = rig.query_number(sessions).await;
        if others == 0 { Ok(()) } else { Err(others) }
    })
    .await;
}

#[tokio::test]
async fn no_session_stays_where_views_are_uninstalled() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.views.start().await.unwrap();
    // What is made after the first removal is kept as before.
    for id in [1_000, 1_001] {
        rig.create(new_view("whole", "SELECT id, v FROM t")).await.unwrap();
        let mut follower =
            rig.views.follow(&view_ref("whole"), None, FollowMode::StartRetention).await.unwrap();
        rig.execute(&format!("INSERT INTO t VALUES ({id}, 1, 1)")).await;
        rig.refresh("whole").await;
        follower.next().await.unwrap();
        rig.verify(&["whole"]).await;
        rig.views.uninstall(None, true).await.unwrap();
        drop(follower);
        until_alone(&rig).await;
    }
    rig.views.stop().await;
}

#[tokio::test]
async fn no_session_stays_where_the_schema_of_views_is_dropped() {
    let rig = Rig::new(15).await;
    rig.execute(TABLES).await;
    rig.views.start().await.unwrap();
    rig.create(new_view("whole", "SELECT id, v FROM t")).await.unwrap();
    rig.execute("INSERT INTO t VALUES (1000, 1, 1)").await;
    rig.refresh("whole").await;
    rig.execute("DROP SCHEMA egret CASCADE").await;
    until_alone(&rig).await;
    rig.views.stop().await;
}
