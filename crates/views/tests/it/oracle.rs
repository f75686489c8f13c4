//! After every refresh a view is what its query says, as multisets, whatever changed in between.
//!
//! Queries, rows and changes are drawn at random, by a seed. `EGRET_VIEWS_CASES` says how many,
//! `EGRET_VIEWS_SEED` where to begin.

mod draw;
mod moments;

use egret_postgres::tokio_postgres::Client;
use egret_postgres_test::TestDatabase;
use egret_views::model::Mode;
use egret_views::testing::{Refreshable, create_in_mode, install};

use crate::world::query_at_last_refresh;
use draw::Draw;

/// Cases in the suite, over all versions. A case is a query with what changes in its tables.
const CASES: u64 = 150;

/// So many queries are of the same tables, and see the same changes.
const QUERIES_PER_WORLD: u64 = 5;

fn environment_number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |set| set.parse().expect("a number"))
}

/// What the server says of a statement that needs more room than it may. A few of the queries that
/// are drawn come to millions of rows.
const TOO_LARGE: &str = "temp_file_limit";

/// One of so many is kept fresh within the transactions that write.
const IMMEDIATE_SHARE: u64 = 3;

#[tokio::test]
async fn a_view_is_what_its_query_says() {
    run_cases(Mode::Incremental, environment_number("EGRET_VIEWS_CASES", CASES)).await;
}

#[tokio::test]
async fn a_view_that_is_kept_fresh_at_once_is_what_its_query_says() {
    let cases_max = environment_number("EGRET_VIEWS_CASES", CASES) / IMMEDIATE_SHARE;
    run_cases(Mode::Immediate, cases_max).await;
}

async fn run_cases(mode: Mode, count: u64) {
    let first = environment_number("EGRET_VIEWS_SEED", 1);
    let seeds: Vec<u64> = (first..first + count.div_ceil(QUERIES_PER_WORLD)).collect();
    // A catalogue in which much was made and dropped is slow.
    for (seeds, version) in seeds.chunks(10).zip([18, 15].into_iter().cycle()) {
        let database = TestDatabase::create(version).await;
        let mut client = database.connect().await;
        client
            .batch_execute("SET client_min_messages = warning; SET temp_file_limit = '64MB'")
            .await
            .unwrap();
        for seed in seeds {
            let mut draw = Draw::new(*seed);
            match run_world(&mut client, &mut draw, mode).await {
                Ok(()) => {}
                Err(problem) if problem.contains(TOO_LARGE) => {
                    client.batch_execute("ROLLBACK").await.unwrap();
                    println!("seed {seed}: joins of joins come to more than is compared");
                }
                Err(problem) => panic!("seed {seed}: {problem}"),
            }
        }
    }
}

/// A view of a query that was drawn.
struct Case {
    name: String,
    query: String,
    /// What rows are compared by. Of values that are equal and look different the server shows any,
    /// if it groups by them.
    compared_expression: &'static str,
    view: Refreshable,
}

async fn run_world(client: &mut Client, draw: &mut Draw, mode: Mode) -> Result<(), String> {
    client
        .batch_execute("DROP SCHEMA IF EXISTS egret CASCADE; DROP SCHEMA IF EXISTS world CASCADE; CREATE SCHEMA world")
        .await
        .unwrap();
    install(client).await.unwrap();
    client.batch_execute("SET search_path = world").await.unwrap();
    let mut script = draw.tables();
    execute(client, &script).await?;
    // Writers do not notice that time passes.
    draw.has_clock = mode == Mode::Incremental;
    let mut cases = Vec::new();
    for index in 0..QUERIES_PER_WORLD {
        let (query, has_groups) = draw.query();
        let name = format!("v{index}");
        let created = create_in_mode(client, "world", &name, &query, mode).await;
        let view = created.map_err(|error| format!("{query}\n{error}\n{script}"))?;
        cases.push(Case {
            name,
            query,
            compared_expression: if has_groups { "ROW(r.*)" } else { "r::text" },
            view,
        });
    }
    for round in 0..5 {
        for case in &cases {
            let result = case.check(client, mode == Mode::Immediate && round > 0).await;
            let with_context =
                |problem| format!("round {round}: {problem}\n{}\n{script}", case.query);
            result.map_err(with_context)?;
        }
        let changes = draw.changes();
        script.push_str(&changes);
        execute(client, &changes).await?;
    }
    Ok(())
}

impl Case {
    /// The view is what its query says, once it was refreshed where it `is_fresh` not by itself.
    async fn check(&self, client: &mut Client, is_fresh: bool) -> Result<(), String> {
        let Self { name, compared_expression: compared, .. } = self;
        if is_fresh {
            let sql = "SELECT reason FROM egret.view WHERE name = $1 AND snapshot IS NULL";
            if let Some(failed) = client.query_opt(sql, &[name]).await.unwrap() {
                return Err(format!("{:?}", failed.get::<_, Option<String>>(0)));
            }
        } else {
            let refreshed = self.view.refresh(client).await;
            refreshed.map_err(|error| format!("{error:?}"))?;
        }
        client.batch_execute("SET search_path = world").await.unwrap();
        let query_at_refresh = query_at_last_refresh(&self.query, name);
        let difference = format!(
            "SELECT r::text, sum(w) FROM (SELECT {compared} AS r, 1 AS w FROM {name} AS r UNION ALL SELECT {compared}, -1 FROM ({query_at_refresh}) AS r) AS both_sides GROUP BY r HAVING sum(w) <> 0 ORDER BY 1 LIMIT 10"
        );
        let rows = client.query(&difference, &[]).await.map_err(|error| format!("{error:?}"))?;
        let differences: Vec<String> = rows
            .iter()
            .map(|row| format!("{} {}", row.get::<_, i64>(1), row.get::<_, String>(0)))
            .collect();
        if differences.is_empty() {
            Ok(())
        } else {
            Err(format!("differs:\n{}", differences.join("\n")))
        }
    }
}

async fn execute(client: &Client, script: &str) -> Result<(), String> {
    let result = client.batch_execute(script).await;
    result.map_err(|error| format!("{error:?}\n{script}"))
}
