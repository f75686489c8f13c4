//! Views that change as time passes, as the engine keeps them.

use super::*;
use crate::world::wait_until;

const ROWS: &str = "CREATE TABLE r (id int PRIMARY KEY, g int, at timestamptz);
     INSERT INTO r SELECT i, i % 3, clock_timestamp() + i * interval '25 ms' FROM generate_series(1, 20) AS i";

const AHEAD: &str = "SELECT id, g, at FROM r WHERE at > now()";

/// Verified at the moment of the refresh that goes before, with what reads it, while rows go.
#[tokio::test]
async fn it_is_verified_at_the_moment_that_it_shows() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(ROWS).await;
        let all = [
            ("ahead", AHEAD),
            ("sums", "SELECT g, count(*) AS n, max(at) AS m FROM ahead GROUP BY g"),
            (
                "paired",
                "SELECT a.id, s.n FROM ahead AS a JOIN sums AS s ON s.g = a.g WHERE s.m > now() + interval '50 ms'",
            ),
        ];
        for (name, query) in all {
            rig.create(new_view(name, query)).await.unwrap();
        }
        let names = ["ahead", "sums", "paired"];
        while rig.query_number("SELECT count(*) FROM ahead").await > 0 {
            rig.verify(&names).await;
            assert_eq!(
                rig.query_number(
                    "SELECT count(DISTINCT clock) FROM egret.view WHERE clock IS NOT NULL"
                )
                .await,
                1
            );
        }
        rig.verify(&names).await;
        for (name, _) in all {
            assert_eq!(rig.query_number(&format!("SELECT count(*) FROM {name}")).await, 0);
            let refreshes = rig.views.history(&view_ref(name), 100).await.unwrap();
            let is_kept = |one: &egret_views::model::RefreshReport| {
                one.outcome == "incremental" || one.strategy_reason.contains("first time")
            };
            assert!(refreshes.iter().all(is_kept), "{name}: {refreshes:?}");
        }
        // What did nothing is not remembered.
        let before = rig.views.history(&view_ref("ahead"), 100).await.unwrap().len();
        assert_eq!(rig.refresh("ahead").await.outcome, "nothing");
        let after = rig.views.history(&view_ref("ahead"), 100).await.unwrap().len();
        assert_eq!(before, after);
        let shown = rig.views.show(&view_ref("ahead")).await.unwrap();
        assert!(shown.has_clock && !shown.is_current);
        let shown = rig.views.show(&view_ref("sums")).await.unwrap();
        assert!(!shown.has_clock && !shown.is_current);
        let explained = rig.views.explain(&view_ref("ahead")).await.unwrap();
        let operators = &explained.stages[0].operators;
        assert!(operators.contains("now()") && operators.contains("as time passes"));
    }
}

#[tokio::test]
async fn one_with_a_lag_is_refreshed_though_nobody_writes() {
    let rig = Rig::new(18).await;
    rig.execute(ROWS).await;
    rig.views.start().await.unwrap();
    for (name, mode) in [("ahead", Mode::Incremental), ("whole", Mode::Full)] {
        let lag = NewView {
            schedule: Some(Schedule::Lag(ConfigDuration::ms(50))),
            mode,
            ..new_view(name, AHEAD)
        };
        rig.create(lag).await.unwrap();
    }
    let anywhere = NewView {
        schedule: Some(Schedule::Lag(ConfigDuration::ms(50))),
        mode: Mode::Full,
        ..new_view("seconds", "SELECT id, at > now() AS is_ahead, LOCALTIMESTAMP AS seen FROM r")
    };
    rig.create(anywhere).await.unwrap();
    let first = "SELECT max(seen)::text FROM seconds";
    let first: String = rig.client.query_one(first, &[]).await.unwrap().get(0);
    let is_later = format!("SELECT max(seen) > '{first}' FROM seconds");
    for gone in [
        "SELECT count(*) = 0 FROM ahead",
        "SELECT count(*) = 0 FROM whole",
        "SELECT count(*) = 20 FROM seconds WHERE NOT is_ahead",
        &is_later,
    ] {
        wait_until(&rig.client, gone).await;
    }
    let current = "SELECT is_current::int::bigint FROM egret.freshness('ahead')";
    assert_eq!(rig.query_number(current).await, 0);
    rig.views.stop().await;
}

#[tokio::test]
async fn a_role_of_its_own_and_no_mode_without_refreshes() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(ROWS).await;
        let role = format!("keeper_{}", rig.database.name);
        rig.execute(&format!(
            "CREATE ROLE {role}; GRANT USAGE, CREATE ON SCHEMA public TO {role}; GRANT SELECT ON r TO {role}"
        ))
        .await;
        let of_role = NewView { owner: Some(role.clone()), ..new_view("ahead", AHEAD) };
        rig.create(of_role).await.unwrap();
        while rig.query_number("SELECT count(*) FROM ahead").await > 0 {
            rig.views.refresh_explained(&view_ref("ahead")).await.unwrap();
            rig.verify(&["ahead"]).await;
        }
        rig.views.drop(&view_ref("ahead")).await.unwrap();
        rig.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
        let at_once =
            NewView { mode: Mode::Immediate, schedule: None, ..new_view("at_once", AHEAD) };
        let refused = rig.create(at_once).await.unwrap_err();
        assert_eq!(refused.code(), "view_unsupported");
        assert!(refused.to_string().contains("changes without a write"));
        rig.create(new_view("ahead", AHEAD)).await.unwrap();
        let alteration = Alteration { mode: Some(Mode::Immediate), ..Alteration::default() };
        let refused = rig.views.alter(&view_ref("ahead"), alteration, ReadableViews::All).await;
        assert_eq!(error_code(refused), "view_unsupported");
    }
}

#[tokio::test]
async fn rows_that_time_changes_are_found_by_an_index() {
    let rig = Rig::new(18).await;
    rig.execute(
        "CREATE TABLE r (id int PRIMARY KEY, g int, at timestamptz);
         INSERT INTO r SELECT i, i % 3, now() + (i - 10000) * interval '1 s' FROM generate_series(1, 20000) AS i; ANALYZE r",
    )
    .await;
    rig.create(new_view("ahead", AHEAD)).await.unwrap();
    let advice = rig.views.show(&view_ref("ahead")).await.unwrap().advice.unwrap();
    assert_eq!(advice[0].statement, "CREATE INDEX ON public.r (at)");
    assert_eq!(advice[0].reason, "rows of public.r are looked up by at as time passes");
    rig.execute(&advice[0].statement).await;
    let shown = rig.views.show(&view_ref("ahead")).await.unwrap();
    assert_eq!(shown.advice, Some(Vec::new()));
    let done = rig.views.refresh_explained(&view_ref("ahead")).await.unwrap();
    let plans = done.plans.unwrap();
    assert!(plans.contains("Index Cond: ((at >= LEAST(now(), "), "{plans}");
    assert!(!plans.contains("Seq Scan on public.r"), "{plans}");
}
