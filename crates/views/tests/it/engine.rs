//! The engine as the doors call it: views on views, schedules, what fails, whose rights count.

mod advice;
mod around;
mod asked;
mod clock;
mod dependencies;
mod follow;
mod guard;
mod immediate;
mod own_equality;
mod published;
mod recording;
mod recreated;
mod recursion;
mod report;
mod rights;
mod sessions;
mod two;
mod unmaintained;
mod watched;
mod write_guard;

use std::sync::Arc;
use std::time::Duration;

use egret_base::lifecycle::Service;
use egret_base::settings::{ByteSize, ConfigDuration};
use egret_base::{CodedError, SystemClock};
use egret_base_test::eventually;
use egret_postgres::Databases;
use egret_postgres::tokio_postgres::Client;
use egret_postgres_test::TestDatabase;
use egret_views::model::{
    Alteration, FollowSettings, MakerRights, Mode, NewView, ReadableViews, Schedule, State,
    ViewReport,
};
use egret_views::{Options, ViewRef, Views, ViewsConfig, ViewsError};
use prometheus_client::registry::Registry;

/// A database with an Egret.
pub struct Rig {
    pub database: TestDatabase,
    pub views: Views,
    pub client: Client,
}

impl Rig {
    async fn new(version: u32) -> Self {
        Self::with_config(version, ViewsConfig::default()).await
    }

    async fn with_config(version: u32, config: ViewsConfig) -> Self {
        Self::over_database(TestDatabase::create(version).await, config).await
    }

    /// Over a database that is there.
    pub async fn over_database(database: TestDatabase, config: ViewsConfig) -> Self {
        let client = database.connect().await;
        client
            .batch_execute("SET search_path = public; SET client_min_messages = warning")
            .await
            .unwrap();
        Self { views: new_engine(&database, config), database, client }
    }

    pub async fn execute(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    pub async fn query_number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub async fn create(&self, view: NewView) -> Result<(), ViewsError> {
        self.views.create(None, view).await.map(|_| ())
    }

    pub async fn alter(
        &self,
        name: &str,
        alteration: Alteration,
    ) -> Result<ViewReport, ViewsError> {
        let views = ReadableViews::All;
        self.views.alter(&view_ref(name), alteration, views).await
    }

    pub async fn refresh(&self, name: &str) -> egret_views::model::RefreshReport {
        self.views.refresh(&view_ref(name)).await.unwrap()
    }

    /// Views that are what their queries say.
    pub async fn verify(&self, names: &[&str]) {
        for name in names {
            let found = self.views.verify(&view_ref(name)).await.unwrap();
            assert_eq!((found.missing, found.extra), (0, 0), "{name}: {found:?}");
        }
    }
}

pub fn new_engine(database: &TestDatabase, config: ViewsConfig) -> Views {
    new_engine_with_metrics(database, config, &mut Registry::default())
}

/// The same, whose metrics are in `registry`.
pub fn new_engine_with_metrics(
    database: &TestDatabase,
    config: ViewsConfig,
    registry: &mut Registry,
) -> Views {
    let options = Options {
        config,
        databases: Databases::single(database.connection()),
        clock: Arc::new(SystemClock),
        task_publisher: None,
    };
    Views::new(options, registry)
}

pub fn view_ref(name: &str) -> ViewRef {
    ViewRef { database: None, name: name.parse().unwrap() }
}

pub fn new_view(name: &str, query: &str) -> NewView {
    NewView {
        name: name.parse().unwrap(),
        query: query.to_owned(),
        mode: Mode::Incremental,
        schedule: Some(Schedule::Manual),
        indexes: Vec::new(),
        owner: None,
        rights: MakerRights::administrator(),
        follow_settings: FollowSettings::default(),
    }
}

fn error_code<T>(result: Result<T, ViewsError>) -> &'static str {
    match result {
        Ok(_) => "fine",
        Err(error) => error.code(),
    }
}

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, g int, v int);
     INSERT INTO t SELECT i, i % 5, i FROM generate_series(1, 100) AS i;
     CREATE TABLE u (g int PRIMARY KEY, name text);
     INSERT INTO u SELECT i, 'g' || i FROM generate_series(0, 6) AS i";

#[tokio::test]
async fn views_that_read_views_are_told_what_changed_and_a_diamond_agrees() {
    for version in [18, 15] {
        let rig = Rig::new(version).await;
        rig.execute(TABLES).await;
        let all = [
            ("base", "SELECT id, g, v FROM t WHERE v > 10"),
            ("sums", "SELECT g, sum(v) AS s, count(*) AS n FROM base GROUP BY g"),
            ("named", "SELECT b.id, u.name FROM base AS b JOIN u ON u.g = b.g"),
            (
                "top",
                "SELECT n.name, count(*) AS n, max(s.s) AS s FROM named AS n JOIN u ON u.name = n.name JOIN sums AS s ON s.g = u.g GROUP BY n.name",
            ),
        ];
        for (name, query) in all {
            rig.create(new_view(name, query)).await.unwrap();
        }
        rig.verify(&["base", "sums", "named", "top"]).await;
        for round in 0..8 {
            rig.execute(&format!(
                "UPDATE t SET v = v + 7, g = (g + 1) % 6 WHERE id % 9 = {round}; DELETE FROM t WHERE id = {}; \
                 INSERT INTO t VALUES ({}, {round}, 50); UPDATE u SET name = name || 'x' WHERE g = {round}",
                round * 3 + 1,
                1000 + round
            ))
            .await;
            let done = rig.refresh("top").await;
            assert_eq!(done.outcome, "incremental", "{done:?}");
            let agree = "SELECT (SELECT sum(n) FROM sums)::bigint - (SELECT count(*) FROM base)";
            assert_eq!(rig.query_number(agree).await, 0);
        }
        rig.verify(&["base", "sums", "named", "top"]).await;
        assert_eq!(rig.refresh("top").await.outcome, "nothing");
        // What a truncated table says is found out anew, and told on.
        rig.execute("TRUNCATE t").await;
        let done = rig.refresh("base").await;
        assert_eq!((done.outcome.as_str(), done.removed > 0), ("full", true));
        assert_eq!(rig.query_number("SELECT count(*) FROM top").await, 0);
        assert_eq!(error_code(rig.views.drop(&view_ref("base")).await), "view_in_use");
        for name in ["top", "named", "sums", "base"] {
            rig.views.drop(&view_ref(name)).await.unwrap();
        }
        let left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'egret'::regnamespace AND relname ~ '[0-9]'";
        assert_eq!(rig.query_number(left).await, 0);
        assert_eq!(rig.views.uninstall(None, false).await.unwrap().1, 0);
    }
}

#[tokio::test]
async fn a_view_with_a_lag_is_refreshed_by_itself() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.views.start().await.unwrap();
    let lag = NewView {
        schedule: Some(Schedule::Lag(ConfigDuration::ms(50))),
        ..new_view("reader", "SELECT g, s + 1 AS s FROM sums")
    };
    rig.create(NewView {
        schedule: None,
        ..new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")
    })
    .await
    .unwrap();
    rig.create(lag).await.unwrap();
    for round in 1..4_i64 {
        rig.execute(&format!("INSERT INTO t VALUES ({}, 77, 1)", 500 + round)).await;
        let sql = format!("SELECT count(*) FROM reader WHERE g = 77 AND s = {}", round + 1);
        eventually("the new row is shown", async || rig.query_number(&sql).await > 0).await;
    }
    rig.views.stop().await;
}

#[tokio::test]
async fn what_fails_keeps_its_last_rows_and_says_why() {
    let config = ViewsConfig { failures_max: 2, ..ViewsConfig::default() };
    let rig = Rig::with_config(18, config).await;
    rig.execute(TABLES).await;
    rig.create(new_view("ratio", "SELECT id, 100 / v AS r FROM t")).await.unwrap();
    rig.create(new_view("all_of_it", "SELECT r, count(*) AS n FROM ratio GROUP BY r"))
        .await
        .unwrap();
    rig.execute("UPDATE t SET v = 0 WHERE id = 1").await;
    let refused = rig.views.refresh(&view_ref("ratio")).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), "view_refresh_failed");
    assert!(refused.retryable(), "{refused}");
    let shown = rig.views.show(&view_ref("ratio")).await.unwrap();
    assert_eq!((shown.state, shown.failures), (State::Failing, 1));
    assert!(shown.reason.unwrap().contains("division by zero"));
    assert_eq!(rig.query_number("SELECT count(*) FROM ratio").await, 100);
    rig.execute("UPDATE t SET v = 1 WHERE id = 1").await;
    let done = rig.refresh("ratio").await;
    assert_eq!((done.changes, done.changed), (4, 0), "both took each other away");
    rig.verify(&["ratio", "all_of_it"]).await;
    rig.execute("UPDATE t SET v = 0 WHERE id = 1").await;
    for _ in 0..2 {
        assert_eq!(error_code(rig.views.refresh(&view_ref("ratio")).await), "view_refresh_failed");
    }
    assert_eq!(error_code(rig.views.refresh(&view_ref("ratio")).await), "view_suspended");
    rig.execute("UPDATE t SET v = 5 WHERE id = 1; INSERT INTO t VALUES (200, 1, 1)").await;
    rig.views.repair(&view_ref("ratio"), &MakerRights::administrator()).await.unwrap();
    rig.verify(&["ratio", "all_of_it"]).await;
    let outcomes = rig.views.history(&view_ref("ratio"), 100).await.unwrap();
    assert!(outcomes.iter().filter(|one| one.outcome == "failed").count() == 3);
}

#[tokio::test]
async fn a_query_has_the_rights_of_its_owner_and_no_others() {
    let rig = Rig::new(18).await;
    let role = format!("owner_{}", rig.database.name);
    rig.execute(TABLES).await;
    rig.execute(&format!(
        "CREATE ROLE {role}; GRANT CREATE ON SCHEMA public TO {role}; GRANT SELECT (id, g) ON t TO {role}; \
         CREATE FUNCTION public.me() RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT current_user::text'"
    ))
    .await;
    let owned =
        |name: &str, query: &str| NewView { owner: Some(role.clone()), ..new_view(name, query) };
    assert_eq!(
        error_code(rig.create(owned("refused", "SELECT id, v FROM t")).await),
        "view_right_missing"
    );
    rig.execute(&format!(
        "CREATE FUNCTION public.theirs(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1'; ALTER FUNCTION public.theirs OWNER TO {role}; \
         CREATE DOMAIN public.small AS int CHECK (public.theirs(VALUE) < 100)"
    ))
    .await;
    for query in ["SELECT public.theirs(g) AS g FROM t", "SELECT g::public.small FROM t"] {
        assert_eq!(error_code(rig.create(owned("refused", query)).await), "view_unsupported");
    }
    let query = "SELECT g, count(*) AS n, max(public.me()) AS who FROM t GROUP BY g";
    rig.create(owned("mine", query)).await.unwrap();
    rig.execute("INSERT INTO t VALUES (400, 9, 9)").await;
    rig.refresh("mine").await;
    let sql = format!("SELECT count(*) FROM mine WHERE who = '{role}' AND g = 9");
    assert_eq!(rig.query_number(&sql).await, 1);
    let shown = rig.views.show(&view_ref("mine")).await.unwrap();
    assert_eq!(shown.owner, role);
    // Nothing else of schema egret is theirs.
    let may = format!(
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'egret'::regnamespace AND relname IN ('view', 'view_capture') \
         AND has_table_privilege('{role}', oid, 'SELECT')"
    );
    assert_eq!(rig.query_number(&may).await, 0);
    rig.execute(&format!(
        "REVOKE SELECT (id, g) ON t FROM {role}; INSERT INTO t VALUES (401, 9, 9)"
    ))
    .await;
    assert_eq!(error_code(rig.views.refresh(&view_ref("mine")).await), "view_refresh_failed");
    assert_eq!(rig.query_number(&sql).await, 1, "it shows what it showed");
    rig.views.drop(&view_ref("mine")).await.unwrap();
    rig.views.uninstall(None, true).await.unwrap();
    rig.execute(&format!("DROP DOMAIN small; DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_query_that_is_not_covered_is_computed_as_a_whole_when_that_is_asked() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    let query = "SELECT id, v, tableoid > 0 AS r FROM t";
    assert_eq!(error_code(rig.create(new_view("ranks", query)).await), "view_unsupported");
    let whole = NewView { mode: Mode::Full, ..new_view("ranks", query) };
    rig.create(whole).await.unwrap();
    rig.execute("UPDATE t SET v = -1 WHERE id = 50").await;
    let done = rig.refresh("ranks").await;
    assert_eq!((done.outcome.as_str(), done.added > 0), ("full", true));
    rig.verify(&["ranks"]).await;
    assert_eq!(rig.refresh("ranks").await.outcome, "nothing");
    let incremental = Alteration { mode: Some(Mode::Incremental), ..Alteration::default() };
    assert_eq!(
        error_code(rig.views.alter(&view_ref("ranks"), incremental, ReadableViews::All).await),
        "view_unsupported"
    );
}

#[tokio::test]
async fn views_are_altered_explained_and_refused() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    let mut indexed = new_view("sums", "SELECT g, sum(v) AS s, avg(v) + 1 AS a FROM t GROUP BY g");
    indexed.indexes = vec![vec!["s".to_owned()]];
    rig.create(indexed.clone()).await.unwrap();
    assert_eq!(error_code(rig.create(indexed.clone()).await), "view_exists");
    indexed.name = "others".parse().unwrap();
    indexed.indexes = vec![vec!["nothing".to_owned()]];
    assert_eq!(error_code(rig.create(indexed).await), "invalid_request");
    assert_eq!(
        error_code(rig.create(new_view("broken", "SELECT nothing FROM t")).await),
        "view_query_refused"
    );
    let full = Alteration { mode: Some(Mode::Full), ..Alteration::default() };
    assert_eq!(rig.alter("sums", full).await.unwrap().mode, Mode::Full);
    rig.execute("INSERT INTO t VALUES (600, 3, 3)").await;
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    let off = Alteration { is_active: Some(false), ..Alteration::default() };
    assert_eq!(rig.alter("sums", off).await.unwrap().state, State::Suspended);
    rig.execute("INSERT INTO t VALUES (601, 3, 3)").await;
    assert_eq!(error_code(rig.views.refresh(&view_ref("sums")).await), "view_suspended");
    let on = Alteration { is_active: Some(true), ..Alteration::default() };
    rig.alter("sums", on).await.unwrap();
    rig.verify(&["sums"]).await;
    let explained = rig.views.explain(&view_ref("sums")).await.unwrap();
    assert_eq!(explained.reads, ["public.t"]);
    assert_eq!(explained.stages.len(), 1);
    assert!(explained.stages[0].sql.contains("egret_changes_0"));
    let valid =
        rig.views.validate(None, "SELECT count(*) FROM t", &ReadableViews::All).await.unwrap();
    assert_eq!(valid.columns, [("count".to_owned(), "bigint".to_owned())]);
    let refused = rig.views.validate(None, "SELECT ctid FROM t", &ReadableViews::All).await;
    assert_eq!(error_code(refused), "view_unsupported");
    assert_eq!(error_code(rig.views.show(&view_ref("nobody")).await), "view_not_found");
    assert_eq!(error_code(rig.views.uninstall(None, false).await), "views_installed");
    assert_eq!(rig.views.uninstall(None, true).await.unwrap().1, 1);
    let triggers = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'egret%'";
    assert_eq!(rig.query_number(triggers).await, 0);
    assert!(rig.views.list(None).await.unwrap().is_empty());
}
