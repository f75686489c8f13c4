//! A database with views that are what their queries say, or the test fails.

use egret_base_test::eventually;
use egret_postgres::tokio_postgres::Client;
use egret_postgres_test::TestDatabase;
use egret_views::ViewsError;
use egret_views::testing::{RefreshOutcome, Refreshable, create, install};

/// Views of one database.
pub struct World {
    /// The session that refreshes the views, and writes where a test names no other.
    pub client: Client,
    pub database: TestDatabase,
    pub views: Vec<View>,
}

pub struct View {
    pub name: String,
    pub query: String,
    pub refreshable: Refreshable,
    compared_expression: &'static str,
}

/// What rows are compared by: what they look like.
const COMPARED_BY_TEXT: &str = "r::text";
/// Their values: of a group whose members are equal and look different, SQL leaves open which is
/// shown.
const COMPARED_BY_VALUE: &str = "ROW(r.*)";

/// What is written for the clock, and what makes the same of a moment.
const CLOCKS: [(&str, &str); 8] = [
    ("now()", ""),
    ("transaction_timestamp()", ""),
    ("CURRENT_TIMESTAMP(0)", "::timestamptz(0)"),
    ("CURRENT_TIMESTAMP", ""),
    ("CURRENT_DATE", "::date"),
    ("LOCALTIMESTAMP", "::timestamp"),
    ("CURRENT_TIME", "::timetz"),
    ("LOCALTIME", "::time"),
];

impl World {
    pub async fn new(version: u32, setup: &str) -> Self {
        let database = TestDatabase::create(version).await;
        let mut client = database.connect().await;
        install(&mut client).await.unwrap();
        client
            .batch_execute("SET search_path = public; SET client_min_messages = warning")
            .await
            .unwrap();
        client.batch_execute(setup).await.unwrap();
        Self { client, database, views: Vec::new() }
    }

    /// Makes a view of a query and fills it.
    pub async fn view(&mut self, query: &str) -> &View {
        self.create_view(query, COMPARED_BY_TEXT).await
    }

    /// The same, where values that are equal may look different.
    pub async fn view_by_value(&mut self, query: &str) -> &View {
        self.create_view(query, COMPARED_BY_VALUE).await
    }

    async fn create_view(&mut self, query: &str, compared_expression: &'static str) -> &View {
        let name = format!("v{}", self.views.len() + 1);
        let created = create_empty_view(&mut self.client, &name, query).await;
        let view = View {
            name,
            query: query.to_owned(),
            refreshable: created.unwrap_or_else(|error| panic!("{query}: {error:?}")),
            compared_expression,
        };
        view.refresh(&mut self.client).await;
        view.assert_matches_query(&self.client).await;
        self.views.push(view);
        self.views.last().unwrap()
    }

    pub fn first(&self) -> &View {
        &self.views[0]
    }

    pub async fn execute(&self, sql: &str) {
        let ran = self.client.batch_execute(sql).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// Refreshes every view and checks it; returns what was done, in their order.
    pub async fn refresh(&mut self) -> Vec<RefreshOutcome> {
        let mut outcomes = Vec::new();
        for view in &self.views {
            outcomes.push(view.refresh(&mut self.client).await);
            view.assert_matches_query(&self.client).await;
        }
        outcomes
    }

    /// Changes something and refreshes every view, by what changed alone; returns how many rows
    /// that changed in each.
    pub async fn apply_change(&mut self, change: &str) -> Vec<i64> {
        self.execute(change).await;
        let outcomes = self.refresh().await;
        for (view, outcome) in self.views.iter().zip(&outcomes) {
            assert!(!outcome.is_full, "{change}: {}", view.query);
        }
        outcomes.iter().map(changed_row_count).collect()
    }

    pub async fn text(&self, sql: &str) -> Option<String> {
        query_text(&self.client, sql).await
    }
}

impl View {
    pub async fn refresh(&self, client: &mut Client) -> RefreshOutcome {
        let outcome = self.refreshable.refresh(client).await;
        outcome.unwrap_or_else(|error| panic!("{}: {error:?}", self.query))
    }

    /// The view is what its query says now.
    pub async fn assert_matches_query(&self, client: &Client) {
        self.assert_matches(client, &query_at_last_refresh(&self.query, &self.name)).await;
    }

    /// The view is what a query says now, as multisets.
    pub async fn assert_matches(&self, client: &Client, query: &str) {
        let (name, compared_expression) = (&self.name, self.compared_expression);
        let sql = format!(
            "SELECT sum(w), r::text FROM (SELECT {compared_expression} AS r, 1 AS w FROM public.{name} AS r UNION ALL \
             SELECT {compared_expression}, -1 FROM ({query}) AS r) AS both_sides GROUP BY r HAVING sum(w) <> 0 ORDER BY 2 LIMIT 20"
        );
        let rows =
            client.query(&sql, &[]).await.unwrap_or_else(|error| panic!("{query}: {error:?}"));
        let differences: Vec<(i64, String)> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert!(differences.is_empty(), "{name} of {query}: {differences:?}");
    }

    /// Its rows as text, in some order that is always the same.
    pub async fn rows(&self, client: &Client) -> Vec<String> {
        query_rows(client, &format!("TABLE public.{}", self.name)).await
    }
}

/// The query of a view as of the moment at which that was refreshed last.
pub fn query_at_last_refresh(query: &str, name: &str) -> String {
    let clock = format!("(SELECT clock FROM egret.view WHERE name = '{name}')");
    CLOCKS.iter().fold(query.to_owned(), |query, (word, cast)| {
        query.replace(word, &format!("({clock}{cast})"))
    })
}

/// Makes a view of a query, empty.
pub async fn create_empty_view(
    client: &mut Client,
    name: &str,
    query: &str,
) -> Result<Refreshable, ViewsError> {
    create(client, "public", name, query).await
}

/// How many rows a refresh changed.
pub fn changed_row_count(outcome: &RefreshOutcome) -> i64 {
    outcome.added + outcome.changed + outcome.removed
}

/// The rows of a query as text, in some order that is always the same.
pub async fn query_rows(client: &Client, query: &str) -> Vec<String> {
    let sql = format!("SELECT r::text FROM ({query}) AS r ORDER BY 1");
    let rows = client.query(&sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// A single value as text.
pub async fn query_text(client: &Client, sql: &str) -> Option<String> {
    let sql = format!("SELECT ({sql})::text");
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

/// Returns once a query, of a boolean, says so.
pub async fn wait_until(client: &Client, sql: &str) {
    let description = format!("`{sql}` returns true");
    eventually(&description, async || {
        let row = client.query_one(sql, &[]).await;
        row.unwrap().get::<_, bool>(0)
    })
    .await;
}

/// Returns once a session waits for a lock in the database of `client`.
pub async fn wait_until_blocked(client: &Client) {
    let sql = "SELECT count(*) > 0 FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database \
        WHERE d.datname = current_database() AND NOT l.granted";
    wait_until(client, sql).await;
}

/// A function that a refresh stops in while [`AdvisoryGate`] is shut.
pub const GATE: &str = "CREATE FUNCTION gate(value int) RETURNS int LANGUAGE plpgsql IMMUTABLE \
    SET lock_timeout = 0 AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN value; END $$;";

/// Stops each session that calls the function of [`GATE`], until it is opened.
pub struct AdvisoryGate(Client);

impl AdvisoryGate {
    pub async fn shut(database: &TestDatabase) -> Self {
        let client = database.connect().await;
        let shut = client.batch_execute("SELECT pg_advisory_lock(1)").await;
        shut.unwrap();
        Self(client)
    }

    pub async fn open(self) {
        let opened = self.0.batch_execute("SELECT pg_advisory_unlock(1)").await;
        opened.unwrap();
    }
}
