//! `egret demo`: the server, the flights, and a branch on which something is tried.

use std::time::Instant;

use anyhow::Context;
use egret_branches::model::{Branch, BranchName, DEFAULT_TENANT, NewBranch};
use egret_branches::{Branches, CreateOutcome};
use egret_postgres::pool;

use super::load_progress::loading_bar;
use super::{LoadOutcome, delays, documents, follow, load, metrics, views};
use crate::api::{Api, Credentials};
use crate::configuration::Configuration;
use crate::output::Output;
use crate::serve::{Egret, EmbeddedParts};

const DATABASE: &str = "flights";
const BRANCH: &str = "demo";
const COUNT_SQL: &str = "SELECT count(*) FROM flights WHERE carrier = 'UA'";
const DELETE_SQL: &str = "DELETE FROM flights WHERE carrier = 'UA'";
const LATE_AIRLINES_SQL: &str =
    "SELECT a.name, count(*), round(avg(arr_delay)::numeric, 1) AS minutes
     FROM flights JOIN airlines a USING (carrier)
     GROUP BY a.name ORDER BY minutes DESC NULLS LAST LIMIT 3";

/// Runs the server with the demo in it until a signal asks for a stop.
pub(crate) async fn run(configuration: &Configuration, output: Output) -> anyhow::Result<()> {
    // The demo's metrics are of 2013: unless a retention is set, they are kept.
    let configuration = &configuration.with_default("series.retention", "0", "egret demo");
    // Its own requests would leave hundreds of lines between those of the story.
    let configuration = &configuration.with_default("server.access_log", "false", "egret demo");
    let Some((egret, mut signals)) = crate::serve::start(configuration, output).await? else {
        return Ok(());
    };
    let outcome = tokio::select! {
        told = run_story(&egret, configuration, output) => told.map(|()| true),
        () = signals.wait() => Ok(false),
    };
    let result = match outcome {
        Ok(true) => {
            signals.wait().await;
            Ok(())
        }
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    crate::serve::stop(egret, &mut signals, output).await;
    result
}

async fn run_story(
    egret: &Egret,
    configuration: &Configuration,
    output: Output,
) -> anyhow::Result<()> {
    let embedded = egret
        .embedded
        .as_ref()
        .context("the demo needs the embedded server: unset postgres.url")?;
    load_flights(embedded, output).await?;
    let branches = &embedded.branches;
    if branches.templates(DEFAULT_TENANT)?.is_empty() {
        let template = branches.refresh_template().await?;
        let ms: f64 = template.phases.iter().map(|phase| phase.ms).sum();
        output.print_story(&format!("created a template of the current database in {ms:.0} ms"))?;
    }
    let branch = create_or_reset_branch(branches, output).await?;
    if let Some(receipt) = &branch.receipt {
        let phases: Vec<String> =
            receipt.phases.iter().map(|phase| format!("{} {:.1}", phase.name, phase.ms)).collect();
        output.print_story(&format!(
            "created branch `{BRANCH}` in {:.1} ms ({})",
            receipt.total_ms,
            phases.join(", ")
        ))?;
    }
    show_branch_isolation(embedded, output).await?;
    let api = open_api(egret, configuration)?;
    let sample = show_queue(embedded, &api, output).await?;
    show_series(&api, output).await?;
    show_views(embedded, &api, output).await?;
    show_documents(embedded, &api, output).await?;
    print_suggestions(branches, egret, &sample, output)
}

/// A session in the demo's database that means its tables.
fn connection_config(embedded: &EmbeddedParts) -> egret_postgres::tokio_postgres::Config {
    let mut connection = embedded.postgres.connection(DATABASE, "demo");
    let options = connection.get_options().unwrap_or_default();
    // Of two values of a setting the later one holds.
    let options = format!("{options} -c search_path=public");
    connection.options(options);
    connection
}

/// Makes the database and loads it, unless an earlier start has.
async fn load_flights(embedded: &EmbeddedParts, output: Output) -> anyhow::Result<()> {
    let server = &embedded.postgres;
    let admin = pool::connect(&server.connection("postgres", "demo")).await?;
    let exists = "SELECT 1 FROM pg_database WHERE datname = $1";
    if admin.query_opt(exists, &[&DATABASE]).await?.is_none() {
        admin.batch_execute("CREATE DATABASE flights").await?;
    }
    let mut client = pool::connect(&connection_config(embedded)).await?;
    let loaded = load(&mut client, &mut loading_bar()).await?;
    let message = match loaded {
        LoadOutcome::Loaded(receipt) => format!(
            "loaded {} rows ({} flights out of New York in 2013) in {:.1} s",
            receipt.rows(),
            receipt
                .tables
                .iter()
                .find(|table| table.name == DATABASE)
                .map_or(0, |table| table.rows),
            receipt.total_ms as f64 / 1e3,
        ),
        LoadOutcome::AlreadyLoaded => "the flights are already loaded".to_owned(),
    };
    Ok(output.print_story(&message)?)
}

/// The demo's branch as its template is: made, or reset when it is there.
async fn create_or_reset_branch(branches: &Branches, output: Output) -> anyhow::Result<Branch> {
    match branches.create(NewBranch::named(branch_name())).await? {
        CreateOutcome::New(branch) => Ok(branch),
        CreateOutcome::Existing(_) => {
            output.print_story("branch `demo` exists; reset it to its template")?;
            Ok(branches.reset(DEFAULT_TENANT, &branch_name(), None).await?)
        }
    }
}

async fn show_branch_isolation(embedded: &EmbeddedParts, output: Output) -> anyhow::Result<()> {
    let branches = &embedded.branches;
    let late_airlines = branches
        .query(DEFAULT_TENANT, &branch_name(), DATABASE, LATE_AIRLINES_SQL, &[], None)
        .await?;
    let mut text = format!(
        "\nOn the branch, the airlines with the longest delays ({:.0} ms):\n",
        late_airlines.elapsed_ms
    );
    for row in &late_airlines.rows {
        let value = |position: usize| row.get(position).cloned().flatten().unwrap_or_default();
        text.push_str(&format!("  {:<28} {:>7} flights {:>6} min\n", value(0), value(1), value(2)));
    }
    let started = Instant::now();
    let deletion =
        branches.query(DEFAULT_TENANT, &branch_name(), DATABASE, DELETE_SQL, &[], None).await?;
    let on_branch =
        branches.query(DEFAULT_TENANT, &branch_name(), DATABASE, COUNT_SQL, &[], None).await?;
    let count_on_branch =
        on_branch.rows.first().and_then(|row| row.first().cloned().flatten()).unwrap_or_default();
    let source = pool::connect(&connection_config(embedded)).await?;
    let count_in_source: i64 = source.query_one(COUNT_SQL, &[]).await?.get(0);
    text.push_str(&format!(
        "\n{DELETE_SQL};  -- on the branch: {} ({:.0} ms)\n  flights of United on the branch  {count_on_branch:>6}\n  flights of United in the source  {count_in_source:>6}\n",
        deletion.command,
        started.elapsed().as_secs_f64() * 1e3,
    ));
    let proof = branches.verify(DEFAULT_TENANT, &branch_name(), DATABASE).await?;
    text.push_str(&format!(
        "  source unchanged, by checksums of {} tables: {}\n",
        proof.tables_checked,
        if proof.source_unchanged { "yes" } else { "NO" },
    ));
    Ok(output.print_story(&text)?)
}

/// The demo's own server, as any program would reach it.
fn open_api(egret: &Egret, configuration: &Configuration) -> anyhow::Result<Api> {
    let token = std::fs::read_to_string(egret.data_dir.admin_token_file())?;
    let credentials = Credentials { token: Some(token.trim().to_owned()), owner: None };
    Api::new(configuration.address()?, credentials)
}

/// Gives the series engine something to tell.
async fn show_series(api: &Api, output: Output) -> anyhow::Result<()> {
    let imported = metrics::import(api).await?;
    let mut text = match imported.samples {
        Some((samples, ms)) => format!(
            "weather and departures of 2013 as series: {samples} samples imported in {:.1} s\n",
            ms / 1e3
        ),
        None => "weather and departures of 2013 are already stored as series\n".to_owned(),
    };
    text.push_str(&format!("  {}\n", metrics::WORST_CARRIERS_QUERY));
    for (carrier, percentage) in imported.worst {
        text.push_str(&format!("  {carrier:<28} {percentage:>6.1} % of departures delayed\n"));
    }
    Ok(output.print_story(&text)?)
}

/// Has results of queries kept fresh.
async fn show_views(embedded: &EmbeddedParts, api: &Api, output: Output) -> anyhow::Result<()> {
    let result = views::create_views(api, &connection_config(embedded), DATABASE).await?;
    let made: Vec<String> =
        result.created.iter().map(|(name, ms)| format!("`{name}` in {ms:.0} ms")).collect();
    let mut text = if !made.is_empty() {
        format!("created views: {}\n", made.join(", "))
    } else {
        "the views exist already, from an earlier start\n".to_owned()
    };
    match result.flight_change {
        Some(change) => {
            let refresh = change.refresh;
            text.push_str(&format!(
                "{};  -- in the source\n  `late_by_carrier` is refreshed: {}, {} changes read, {} row changed ({:.0} ms)\n  \
                 `worst` reads it, worst month of {}: {} min before, {} min after\n",
                views::CHANGE,
                refresh.outcome,
                refresh.changes,
                refresh.changed,
                refresh.took_ms,
                change.airline,
                change.before,
                change.after,
            ));
        }
        None => text.push_str(
            "  the views or the flights were changed since the demo created them: nothing to show\n",
        ),
    }
    if let Some(deltas) = result.followed_deltas {
        text.push_str(&format!(
            "{};  -- in the source, while two views are followed\n",
            follow::CHANGE
        ));
        for delta in deltas {
            text.push_str(&format!("  changes of {}:\n", delta.view));
            for row in delta.rows {
                text.push_str(&format!("    {row}\n"));
            }
        }
    }
    Ok(output.print_story(&text)?)
}

/// Keeps the flights as documents as well.
async fn show_documents(embedded: &EmbeddedParts, api: &Api, output: Output) -> anyhow::Result<()> {
    let result = documents::load_documents(api, &connection_config(embedded), DATABASE).await?;
    let mut text = match result.imported {
        Some(imported) => {
            let mut text = format!(
                "flights as documents with references to airlines, planes and airports: {} accepted in {:.1} s, the others refused\n",
                imported.accepted, imported.seconds,
            );
            for reason in imported.reasons {
                text.push_str(&format!("  {reason}\n"));
            }
            text.push_str(&format!(
                "  {} missing documents are created from that report, and the other {} flights are accepted\n",
                imported.missing, imported.accepted_later,
            ));
            text
        }
        None => "the flights are already stored as documents\n".to_owned(),
    };
    text.push_str(&format!(
        "POST /v1/documents/flights {}\n  is refused: {}\nDELETE the document of JFK\n  is refused: {}\n",
        documents::DANGLING_FLIGHT,
        result.dangling_refusal,
        result.deletion_refusal,
    ));
    if let Some(event) = result.change_event {
        text.push_str(&format!("PATCH it, while changes are followed\n  change: {event}\n"));
    }
    Ok(output.print_story(&text)?)
}

/// Lets the queue have something to do. Returns the id of a task that was completed.
async fn show_queue(embedded: &EmbeddedParts, api: &Api, output: Output) -> anyhow::Result<String> {
    let worked = delays::process_delays(api, &connection_config(embedded), DATABASE).await?;
    let mut text = match worked.enqueue_ms {
        Some(ms) => format!("{}  -- in PostgreSQL, {ms:.0} ms\n", delays::ENQUEUE.trim_end()),
        None => {
            format!("the tasks of queue `{}` exist already, from an earlier start\n", delays::QUEUE)
        }
    };
    text.push_str(&format!(
        "  tasks completed through the HTTP API   {:>6} ({:.0} ms)\n  the result of one: {}\n",
        worked.tasks, worked.work_ms, worked.sample.result
    ));
    output.print_story(&text)?;
    Ok(worked.sample.id)
}

/// What to try next, with the strings to do it.
fn print_suggestions(
    branches: &Branches,
    egret: &Egret,
    task: &str,
    output: Output,
) -> anyhow::Result<()> {
    let credentials = branches.credentials(DEFAULT_TENANT, &branch_name())?;
    let url = &egret.greeting.url;
    let proxy = egret.greeting.proxy.as_deref().unwrap_or_default();
    let program = std::env::args().next().unwrap_or_else(|| "egret".to_owned());
    Ok(output.print_story(&format!(
        "Try it (in another terminal):\n\
         \x20 psql 'postgres://{}:{}@{}/{DATABASE}@{BRANCH}'\n\
         \x20 {program} branch create mine\n\
         \x20 {program} branch query mine 'select count(*) from flights'\n\
         \x20 {program} branch list\n\
         \x20 {program} branch destroy mine\n\
         \x20 {program} queue outbox status\n\
         \x20 {program} view list\n\
         \x20 {program} view history late_by_carrier\n\
         \x20 {program} view tail worst_routes\n\
         \x20 {program} document query flights '/origin = JFK' '/dep_delay > 600' --count exact --embed plane\n\
         \x20 {program} document tail\n\
         \x20 {program} series range 'weather_temperature_fahrenheit' --end {end} --last 7d --step 3h\n\
         \x20 {program} series query 'sum by (origin) (increase(flights_delayed_departures_total[1d]))' --at {end}\n\
         \x20 {program} series cardinality\n\
         \x20 curl -sH \"authorization: Bearer $(cat '{}')\" '{url}v1/tasks/{task}'\n\
         make {url}prometheus a Prometheus data source of Grafana (the token is the password),\n\
         and look at {url}docs. Ctrl-C stops everything.",
        credentials.user,
        credentials.password,
        proxy,
        egret.data_dir.admin_token_file().display(),
        end = metrics::YEAR_END,
    ))?)
}

fn branch_name() -> BranchName {
    BRANCH.parse().expect("the demo's branch has a valid name")
}
