//! What keeps a view from being worse than it was.

use egret_base::lifecycle::Service;
use egret_base::settings::ConfigDuration;
use egret_base::{CodedError, Kind};
use egret_base_test::{ConditionLog, eventually};
use egret_postgres::installation::inventory;
use egret_views::ViewsConfig;
use egret_views::model::{Alteration, MakerRights, Mode, NewView, ReadableViews, Schedule, State};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::{Rig, TABLES, error_code, new_engine_with_metrics, new_view, view_ref};
use crate::world::wait_until;

#[tokio::test]
async fn a_fuse_suspends_a_view_of_which_too_much_changed_at_once() {
    let config = ViewsConfig { fuse_changes: 50, ..ViewsConfig::default() };
    let rig = Rig::with_config(18, config).await;
    rig.execute(TABLES).await;
    let sums = "SELECT g, sum(v) AS s FROM t GROUP BY g";
    rig.create(new_view("sums", sums)).await.unwrap();
    rig.execute("UPDATE t SET v = v + 1 WHERE id <= 25").await;
    assert_eq!(rig.refresh("sums").await.outcome, "incremental");
    let total = "SELECT sum(s)::bigint FROM sums";
    let before = rig.query_number(total).await;
    rig.execute("UPDATE t SET v = 0 WHERE id <= 26").await;
    let refreshed = rig.views.refresh(&view_ref("sums")).await.map(drop);
    let refused = refreshed.unwrap_err();
    let answered = (refused.code(), refused.kind(), refused.retryable());
    assert_eq!(answered, ("view_refresh_failed", Kind::Conflict, false));
    let message = refused.to_string();
    assert!(message.contains("repair it, or resume it"), "{message}");
    let shown = rig.views.show(&view_ref("sums")).await.unwrap();
    assert_eq!(shown.state, State::Suspended);
    let reason = shown.reason.unwrap();
    assert!(
        reason.starts_with("52 changes exceed the maximum of 50 (`views.fuse_changes`)"),
        "{reason}"
    );
    assert_eq!(error_code(rig.views.refresh(&view_ref("sums")).await), "view_suspended");
    assert_eq!(rig.query_number(total).await, before);
    let alteration = Alteration { is_active: Some(true), ..Alteration::default() };
    rig.views.alter(&view_ref("sums"), alteration, ReadableViews::All).await.unwrap();
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    rig.verify(&["sums"]).await;
    // One that reads another is not told of more than it takes either, and the other goes on.
    rig.create(new_view("above", "SELECT s FROM sums WHERE s > 0")).await.unwrap();
    rig.execute("DELETE FROM t WHERE id = 30").await;
    assert_eq!(rig.refresh("above").await.outcome, "incremental");
    rig.verify(&["sums", "above"]).await;
}

#[tokio::test]
async fn a_join_of_which_too_much_comes_is_computed_anew() {
    let config = ViewsConfig { delta_rows_max: 60, ..ViewsConfig::default() };
    let rig = Rig::with_config(18, config).await;
    rig.execute(TABLES).await;
    let all = [
        ("joined", "SELECT t.id, u.name FROM t JOIN u ON u.g = t.g"),
        ("named", "SELECT u.name, sum(t.v) AS s FROM t JOIN u ON u.g = t.g GROUP BY u.name"),
        ("only", "SELECT id, v FROM t WHERE v > 3"),
        ("above", "SELECT name, count(*) AS n FROM joined GROUP BY name"),
    ];
    for (name, query) in all {
        rig.create(new_view(name, query)).await.unwrap();
    }
    let outcomes = async || {
        let mut outcomes = Vec::new();
        for name in ["joined", "named", "only"] {
            outcomes.push(rig.refresh(name).await.outcome);
        }
        rig.verify(&["joined", "named", "only", "above"]).await;
        outcomes
    };
    // Twenty rows each go and come.
    rig.execute("UPDATE u SET name = 'x' WHERE g = 1").await;
    assert_eq!(outcomes().await, ["incremental", "incremental", "nothing"]);
    rig.execute("UPDATE u SET name = name || 'y' WHERE g <= 2").await;
    assert_eq!(outcomes().await, ["full", "full", "nothing"]);
    // What is not joined comes to no more than what changed.
    rig.execute("UPDATE t SET v = v + 1").await;
    assert_eq!(outcomes().await, ["incremental", "full", "incremental"]);
    rig.execute("UPDATE t SET v = v + 1 WHERE id = 1").await;
    assert_eq!(outcomes().await, ["incremental", "incremental", "incremental"]);
}

#[tokio::test]
async fn a_view_that_is_not_what_its_query_says_is_found_and_computed_anew() {
    let config = ViewsConfig { verify_every: 2, ..ViewsConfig::default() };
    let rig = Rig::with_config(18, config).await;
    rig.execute(TABLES).await;
    let mut sums = new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g");
    sums.schedule = Some(Schedule::Lag(ConfigDuration::ms(10)));
    rig.create(sums).await.unwrap();
    rig.views.start().await.unwrap();
    rig.execute("UPDATE egret.view_1_0 SET egret_sum2 = egret_sum2 + 1, c2 = c2 + 1").await;
    let right = "SELECT NOT EXISTS ((TABLE sums EXCEPT SELECT g, sum(v) FROM t GROUP BY g) \
                 UNION ALL (SELECT g, sum(v) FROM t GROUP BY g EXCEPT TABLE sums))";
    for _ in 0..4 {
        let reached = "SELECT snapshot::text FROM egret.view";
        let before: Option<String> = rig.client.query_one(reached, &[]).await.unwrap().get(0);
        rig.execute("UPDATE t SET g = g WHERE id = 1; UPDATE t SET v = v + 1 WHERE id = 1").await;
        let before = before.unwrap_or_default();
        let moved =
            format!("SELECT snapshot IS NOT NULL AND snapshot::text <> '{before}' FROM egret.view");
        wait_until(&rig.client, &moved).await;
    }
    wait_until(&rig.client, right).await;
    rig.views.stop().await;
    rig.verify(&["sums"]).await;
}

#[tokio::test]
async fn nothing_is_computed_of_rows_that_came_and_went() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    let all = [
        ("kept", "SELECT id, v FROM t WHERE 100 / v > 1"),
        ("shown", "SELECT id, 100 / v AS share FROM t"),
        ("joined", "SELECT t.id, u.name FROM t JOIN u ON u.g = t.g AND 100 / t.v > 1"),
        ("summed", "SELECT g, sum(100 / v) AS s FROM t GROUP BY g"),
    ];
    for (name, query) in all {
        rig.create(new_view(name, query)).await.unwrap();
    }
    rig.execute("INSERT INTO t VALUES (1000, 1, 0); UPDATE t SET v = 5 WHERE id = 1000").await;
    rig.execute("UPDATE t SET v = 0 WHERE id = 1; UPDATE t SET v = 4 WHERE id = 1").await;
    for (name, _) in all {
        assert_eq!(rig.refresh(name).await.outcome, "incremental", "{name}");
    }
    rig.verify(&["kept", "shown", "joined", "summed"]).await;
}

#[tokio::test]
async fn a_view_that_fails_in_a_component_is_its_own_affair() {
    let rig =
        Rig::with_config(18, ViewsConfig { delta_rows_max: 60, ..ViewsConfig::default() }).await;
    rig.execute(TABLES).await;
    let joined = "SELECT t.id, u.name FROM t JOIN u ON u.g = t.g";
    rig.create(new_view("base", "SELECT g, count(*) AS n FROM t GROUP BY g")).await.unwrap();
    // As many as are tried again, and more.
    let names = ["j1", "j2", "j3", "j4", "j5"];
    for name in names {
        let query = format!("{joined} JOIN base ON base.g = t.g WHERE base.n > 0");
        rig.create(new_view(name, &query)).await.unwrap();
    }
    rig.create(new_view("shares", "SELECT g, 100 / (n - 20) AS share FROM base WHERE n <> 20"))
        .await
        .unwrap();
    rig.execute("UPDATE u SET name = name || 'y'").await;
    assert_eq!(rig.refresh("j5").await.outcome, "full");
    rig.verify(&names).await;
    rig.verify(&["base", "shares"]).await;
}

#[tokio::test]
async fn metrics_tell_of_refreshes_and_of_what_waits() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    let mut registry = Registry::default();
    let views = new_engine_with_metrics(&rig.database, ViewsConfig::default(), &mut registry);
    let sums = "SELECT g, sum(v) AS s FROM t GROUP BY g";
    views.create(None, new_view("sums", sums)).await.unwrap();
    rig.execute("UPDATE t SET v = v + 1 WHERE id <= 10").await;
    assert_eq!(views.refresh(&view_ref("sums")).await.unwrap().outcome, "incremental");
    let told = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    };
    let text = told();
    for line in [
        "egret_views_refreshes_total{outcome=\"full\"} 1\n",
        "egret_views_refreshes_total{outcome=\"incremental\"} 1\n",
        "egret_views_changes_total 20\n",
        "egret_views_rows_total 10\n",
        "egret_views_refresh_seconds_count 2\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    views.start().await.unwrap();
    let bytes = || {
        let text = told();
        let value = text
            .lines()
            .filter(|line| line.starts_with("egret_views_changes_bytes{"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        value.sum::<u64>()
    };
    eventually(
        "recorded changes are measured",
        async || {
            if bytes() == 0 { Err(told()) } else { Ok(()) }
        },
    )
    .await;
    assert!(told().contains("egret_views_changes_dead_rows{"));
    views.stop().await;
}

#[tokio::test]
async fn what_fails_only_between_two_states_is_computed_as_a_whole() {
    let rig = Rig::new(18).await;
    rig.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY, v int);
         INSERT INTO a VALUES (1, 10), (2, 20); INSERT INTO b VALUES (1, 5), (2, 10)",
    )
    .await;
    let ratio = "SELECT id, 100 / (a.v - b.v) AS r FROM a JOIN b USING (id)";
    rig.create(new_view("ratio", ratio)).await.unwrap();
    // The new row of one was never there with the old row of the other.
    rig.execute("UPDATE a SET v = 10 WHERE id = 2; UPDATE b SET v = 30 WHERE id = 2").await;
    let done = rig.refresh("ratio").await;
    let why = "the changes could not be computed incrementally";
    assert_eq!((done.outcome.as_str(), done.strategy_reason.as_str()), ("full", why));
    rig.execute("UPDATE a SET v = 29 WHERE id = 2").await;
    assert_eq!(rig.refresh("ratio").await.changed, 1);
    rig.verify(&["ratio"]).await;
    let only = "SELECT a.id, (SELECT b.v FROM b WHERE b.v = a.v) AS v FROM a";
    rig.create(new_view("only", only)).await.unwrap();
    rig.execute("UPDATE a SET v = 5 WHERE id = 1; INSERT INTO b VALUES (3, 5)").await;
    let several = rig.views.refresh(&view_ref("only")).await;
    assert_eq!(error_code(several), "view_refresh_failed");
    let shown = rig.views.show(&view_ref("only")).await.unwrap();
    assert!(shown.reason.unwrap().contains("more than one row"));
    rig.execute("DELETE FROM b WHERE id = 1").await;
    rig.refresh("only").await;
    rig.verify(&["ratio", "only"]).await;
}

#[tokio::test]
async fn a_view_that_cannot_be_refreshed_is_one_line_at_its_start_and_one_at_its_end() {
    let rig = Rig::new(16).await;
    rig.execute("CREATE TABLE part (id int PRIMARY KEY, n int); INSERT INTO part VALUES (1, 1)")
        .await;
    rig.create(new_view("share", "SELECT id, 100 / n AS share FROM part")).await.unwrap();
    let log = ConditionLog::watch("views_refresh_failing", &rig.database.name);
    rig.execute("INSERT INTO part VALUES (2, 0)").await;
    for _ in 0..3 {
        let failed = rig.views.refresh(&view_ref("share")).await.unwrap_err();
        assert!(failed.to_string().contains("division by zero"), "{failed}");
        assert!(log.is_active());
    }
    rig.execute("UPDATE part SET n = 4 WHERE n = 0").await;
    rig.refresh("share").await;
    rig.verify(&["share"]).await;
    assert!(!log.is_active());
    assert_eq!(log.levels(), ["WARN", "INFO"]);
}

/// A trigger that a user has made of one of Egret's functions is no part of the view.
#[tokio::test]
async fn a_trigger_of_a_user_keeps_the_function_that_it_calls() {
    for mode in [Mode::Auto, Mode::Immediate] {
        let rig = Rig::new(18).await;
        rig.execute(TABLES).await;
        let sums = NewView {
            mode,
            schedule: None,
            ..new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")
        };
        rig.create(sums).await.unwrap();
        rig.execute(
            "DO $$ BEGIN EXECUTE format('CREATE TRIGGER mine BEFORE INSERT ON u FOR EACH STATEMENT EXECUTE FUNCTION %s()', \
             (SELECT tgfoid::regproc FROM pg_trigger WHERE tgrelid = 't'::regclass AND tgname ~ '_insert_' LIMIT 1)); END $$",
        )
        .await;
        let refused = rig.views.drop(&view_ref("sums")).await.unwrap_err();
        assert_eq!(refused.code(), "view_in_use");
        let remedy = "trigger mine on table public.u (DROP TRIGGER mine ON public.u)";
        assert!(refused.to_string().contains(remedy), "{refused}");
        let uninstalled = rig.views.uninstall(None, true).await;
        assert_eq!(error_code(uninstalled), "view_in_use");
        let kept = "SELECT count(*) FROM pg_trigger WHERE tgname = 'mine'";
        assert_eq!(rig.query_number(kept).await, 1);
        rig.execute("DROP TRIGGER mine ON u").await;
        rig.views.drop(&view_ref("sums")).await.unwrap();
    }
}

/// What users have put on a view, or on a table of it, goes with neither silently.
#[tokio::test]
async fn triggers_and_rules_of_users_on_a_view_keep_it() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
    rig.execute(
        "CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    )
    .await;
    let storage = "SELECT oid::regclass::text FROM pg_class \
         WHERE relnamespace = 'egret'::regnamespace AND relkind = 'r' AND relname ~ '^view_[0-9]+_[0-9]+$' ORDER BY 1 LIMIT 1";
    let storage: String = rig.client.query_one(storage, &[]).await.unwrap().get(0);
    let obstacles = [
        (
            "CREATE TRIGGER mine INSTEAD OF INSERT ON sums FOR EACH ROW EXECUTE FUNCTION own()"
                .to_owned(),
            "DROP TRIGGER mine ON public.sums".to_owned(),
        ),
        (
            format!(
                "CREATE TRIGGER egret_insert_1 AFTER INSERT ON {storage} FOR EACH ROW EXECUTE FUNCTION own()"
            ),
            format!("DROP TRIGGER egret_insert_1 ON {storage}"),
        ),
        (
            "CREATE RULE mine AS ON INSERT TO sums DO INSTEAD NOTHING".to_owned(),
            "DROP RULE mine ON public.sums".to_owned(),
        ),
    ];
    for (make, remedy) in obstacles {
        rig.execute(&make).await;
        let dropped = rig.views.drop(&view_ref("sums")).await.unwrap_err();
        let uninstalled = rig.views.uninstall(None, true).await.unwrap_err();
        for refused in [dropped, uninstalled] {
            assert_eq!(refused.code(), "view_in_use", "{make}");
            assert!(refused.to_string().contains(&remedy), "{make}: {refused}");
        }
        rig.verify(&["sums"]).await;
        rig.execute(&remedy).await;
    }
    rig.views.drop(&view_ref("sums")).await.unwrap();
    // Nor do those on tables that every view shares.
    rig.execute(
        "CREATE TRIGGER mine AFTER INSERT ON egret.view FOR EACH ROW EXECUTE FUNCTION own()",
    )
    .await;
    let refused = rig.views.uninstall(None, true).await.unwrap_err();
    assert_eq!(refused.code(), "postgres_user_objects");
    let remedy = "DROP TRIGGER mine ON egret.view";
    assert!(refused.to_string().contains(remedy), "{refused}");
    rig.execute(remedy).await;
    rig.views.uninstall(None, true).await.unwrap();
}

#[tokio::test]
async fn a_repair_that_needs_other_columns_names_what_depends_on_the_view() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(new_view("kept", "SELECT id, v FROM t")).await.unwrap();
    rig.execute(
        "CREATE VIEW reader AS SELECT v FROM kept; ALTER TABLE t ALTER COLUMN v TYPE bigint",
    )
    .await;
    let repaired = rig.views.repair(&view_ref("kept"), &MakerRights::administrator()).await;
    let refused = repaired.unwrap_err();
    assert_eq!(refused.code(), "view_in_use", "{refused}");
    assert!(refused.to_string().contains("reader"), "{refused}");
    rig.execute("DROP VIEW reader").await;
    rig.views.repair(&view_ref("kept"), &MakerRights::administrator()).await.unwrap();
    rig.verify(&["kept"]).await;
}

#[tokio::test]
async fn nothing_of_egret_is_taken_for_a_users() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
    let found = inventory(&rig.client).await.unwrap().unwrap();
    assert_eq!(found.obstacles, []);
    assert_eq!(found.indexes, Vec::<String>::new());
}
