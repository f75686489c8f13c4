//! Requests that wait for a refresh leave their sessions to others.

use std::future::Future;

use egret_base::settings::Span;
use egret_postgres::PostgresConfig;
use egret_postgres::databases::request_sessions;
use egret_views::model::{Alteration, ViewReport};

use super::*;
use crate::world::{GATE, Gate, until_blocked};

/// A rig whose requests have one session together.
async fn with_one_session() -> Rig {
    let database = TestDatabase::create(18).await;
    let sessions = request_sessions(&PostgresConfig {
        pool_connections_max: 1,
        ..PostgresConfig::default()
    });
    let options = Options {
        config: ViewsConfig {
            lock_timeout: Span::secs(3_600),
            ..ViewsConfig::default()
        },
        databases: Databases::one(database.connection()).with_sessions(sessions),
        clock: Arc::new(SystemClock),
        tasks: None,
    };
    let client = database.connect().await;
    let set = "SET search_path = public; SET client_min_messages = warning";
    client.batch_execute(set).await.unwrap();
    let rig = Rig {
        views: Views::new(options, &mut Registry::default()),
        database,
        client,
    };
    rig.run(TABLES).await;
    rig.run(GATE).await;
    rig
}

/// While a request waits for a refresh, another one is answered.
async fn check_waits_without_session(
    rig: &Rig,
    request: impl Future<Output = Result<ViewReport, ViewsError>> + Send + 'static,
) {
    let gate = Gate::shut(&rig.database).await;
    let waiting = tokio::spawn(request);
    until_blocked(&rig.client).await;
    rig.views.list(None).await.unwrap();
    assert!(!waiting.is_finished());
    gate.open().await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_waits_for_a_refresh_leaves_its_session_to_others() {
    let rig = with_one_session().await;
    let gated = view("gated", "SELECT id, gate(v) AS v FROM t");
    let views = rig.views.clone();
    check_waits_without_session(&rig, async move { views.create(None, gated).await }).await;
    let views = rig.views.clone();
    check_waits_without_session(&rig, async move {
        views.repair(&at("gated"), &MakerRights::all()).await
    })
    .await;
    let immediate = Alteration {
        mode: Some(Mode::Immediate),
        ..Alteration::default()
    };
    let views = rig.views.clone();
    check_waits_without_session(&rig, async move {
        views
            .alter(&at("gated"), immediate, ReadableViews::All)
            .await
    })
    .await;
    rig.verify(&["gated"]).await;
}

#[tokio::test]
async fn a_view_that_cannot_be_filled_is_gone_when_its_maker_is_told() {
    let rig = with_one_session().await;
    let refused = rig
        .create(view("shares", "SELECT id, v / (v - v) AS share FROM t"))
        .await;
    assert_eq!(code(refused), "view_not_filled");
    assert_eq!(rig.views.list(None).await.unwrap().len(), 0);
    assert_eq!(rig.number("SELECT count(*) FROM egret.view").await, 0);
}
