//! After every refresh a view is what its query says, as multisets, whatever changed in between.
//!
//! Queries, rows and changes are drawn at random, by a seed. `EGRET_VIEWS_CASES` says how many, `EGRET_VIEWS_SEED` where to
//! begin.

mod draw;

use egret_postgres::test_support::TestDatabase;
use egret_postgres::tokio_postgres::Client;
use egret_views::model::Mode;
use egret_views::testing::{Refreshable, create_in, install};

use crate::world::as_refreshed;
use draw::Draw;

/// Cases in the suite, over all versions.
const CASES: u64 = 150;

fn number(name: &str, usual: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(usual, |set| set.parse().expect("a number"))
}

/// One of so many is kept fresh within the transactions that write.
const IMMEDIATE_SHARE: u64 = 3;

#[tokio::test]
async fn a_view_is_what_its_query_says() {
    cases(Mode::Incremental, number("EGRET_VIEWS_CASES", CASES)).await;
}

#[tokio::test]
async fn a_view_that_is_kept_fresh_at_once_is_what_its_query_says() {
    let cases_max = number("EGRET_VIEWS_CASES", CASES) / IMMEDIATE_SHARE;
    cases(Mode::Immediate, cases_max).await;
}

async fn cases(mode: Mode, count: u64) {
    let first = number("EGRET_VIEWS_SEED", 1);
    let seeds: Vec<u64> = (first..first + count).collect();
    // A catalogue in which much was made and dropped is slow.
    for (seeds, version) in seeds.chunks(50).zip([18, 15].into_iter().cycle()) {
        let database = TestDatabase::create(version).await;
        let mut client = database.connect().await;
        client
            .batch_execute("SET client_min_messages = warning")
            .await
            .unwrap();
        for seed in seeds {
            let mut draw = Draw::new(*seed);
            if let Err(problem) = case(&mut client, &mut draw, mode).await {
                panic!("seed {seed}: {problem}");
            }
        }
    }
}

async fn case(client: &mut Client, draw: &mut Draw, mode: Mode) -> Result<(), String> {
    client
        .batch_execute("DROP SCHEMA IF EXISTS egret CASCADE; DROP SCHEMA IF EXISTS world CASCADE; CREATE SCHEMA world")
        .await
        .unwrap();
    install(client).await.unwrap();
    client
        .batch_execute("SET search_path = world")
        .await
        .unwrap();
    let mut script = draw.tables();
    run(client, &script).await?;
    // Writers do not notice that time passes.
    draw.has_clock = mode == Mode::Incremental;
    let (query, has_groups) = draw.query();
    let view: Refreshable = match create_in(client, ("world", "v"), &query, mode).await {
        Ok(view) => view,
        Err(error) => return Err(format!("{query}\n{error}\n{script}")),
    };
    for round in 0..5 {
        if mode != Mode::Immediate || round == 0 {
            let refreshed = view.refresh(client).await;
            refreshed.map_err(|error| format!("round {round}: {error:?}\n{query}\n{script}"))?;
        } else {
            let sql = "SELECT reason FROM egret.view WHERE snapshot IS NULL";
            if let Some(failed) = client.query_opt(sql, &[]).await.unwrap() {
                let reason: Option<String> = failed.get(0);
                return Err(format!("round {round}: {reason:?}\n{query}\n{script}"));
            }
        }
        client
            .batch_execute("SET search_path = world")
            .await
            .unwrap();
        let asked = as_refreshed(&query, "v");
        // Of values that are equal and look different the server shows any, if it groups by them.
        let shown = if has_groups { "ROW(r.*)" } else { "r::text" };
        let difference = format!(
            "SELECT r::text, sum(w) FROM (SELECT {shown} AS r, 1 AS w FROM v AS r UNION ALL SELECT {shown}, -1 FROM ({asked}) AS r) AS both_sides GROUP BY r HAVING sum(w) <> 0 ORDER BY 1 LIMIT 10"
        );
        let rows = client
            .query(&difference, &[])
            .await
            .map_err(|error| format!("{error:?}\n{query}\n{script}"))?;
        if !rows.is_empty() {
            let shown: Vec<String> = rows
                .iter()
                .map(|row| format!("{} {}", row.get::<_, i64>(1), row.get::<_, String>(0)))
                .collect();
            return Err(format!(
                "round {round} differs:\n{}\n{query}\n{script}",
                shown.join("\n")
            ));
        }
        let changes = draw.changes();
        script.push_str(&changes);
        run(client, &changes).await?;
    }
    Ok(())
}

async fn run(client: &Client, script: &str) -> Result<(), String> {
    let ran = client.batch_execute(script).await;
    ran.map_err(|error| format!("{error:?}\n{script}"))
}
