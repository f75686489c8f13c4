//! `egret view …`: results of queries that are kept fresh.

mod explain;
mod graph;
mod report;
mod tail;

use std::io::Read;

use egret_base::settings::Value;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use self::report::{Refresh, Verification, View};
use crate::api::Api;
use crate::cli::{self, ViewArgs};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::responses::Items;

/// The views of databases.
#[derive(Debug, Deserialize)]
struct Views {
    items: Vec<View>,
    #[serde(default)]
    incomplete: bool,
}

pub(crate) async fn run(
    command: cli::ViewCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    use cli::ViewCommand as Command;
    match command {
        Command::Create(view) => create(*view, api, output).await,
        Command::List { database } => {
            let answer = api.get(&["views"], &database_query(database.as_deref())).await?;
            output.print_answer(&answer, |list: Views| {
                let mut text = report::table(&list.items);
                if list.incomplete {
                    text.push_str(output::INCOMPLETE_NOTE);
                }
                text
            })
        }
        Command::Graph { database } => graph(database.as_deref(), api, output).await,
        Command::Show(view) => {
            let answer = call_view(Method::GET, &view, &[], None, api).await?;
            output.print_answer(&answer, |view: View| report::describe(&view))
        }
        Command::Explain(arguments) => explain(arguments, api, output).await,
        Command::Validate { query, database } => {
            let answer = validate(&query, database, api).await?;
            output.print_answer(&answer, explain::validation_text)
        }
        Command::Refresh { view, explain } => {
            let body = json!({ "explain": explain });
            let refreshing = call_view(Method::POST, &view, &["refresh"], Some(body), api);
            let answer = output.wait_with_spinner("refreshing", refreshing).await?;
            output.print_answer(&answer, |refresh: Refresh| refresh.describe(&view.name))
        }
        Command::Tail { view, after, limit } => tail::run(&view, after, limit, api, output).await,
        Command::Verify(view) => verify(&view, api, output).await,
        Command::Alter(alter) => {
            let body = alteration_body(&alter);
            let answer = call_view(Method::PATCH, &alter.view, &[], Some(body), api).await?;
            output.print_answer(&answer, |view: View| report::describe(&view))
        }
        Command::Repair(view) => {
            let repairing = call_view(Method::POST, &view, &["repair"], Some(json!({})), api);
            let answer = output.wait_with_spinner("rebuilding the view", repairing).await?;
            output.print_answer(&answer, |view: View| {
                format!("view {} is rebuilt\n\n{}", view.name, report::describe(&view))
            })
        }
        Command::Drop(view) => {
            call_view(Method::DELETE, &view, &[], None, api).await?;
            let answer = json!({"view": view.name, "dropped": true});
            output.print_answer(&answer, |_: Json| format!("view {} is dropped", view.name))
        }
        Command::Allow { roles, database } => {
            let body = json!({"roles": roles, "database": database});
            let answer = api.post(&["view-grants"], body).await?;
            output.print_answer(&answer, report::describe_grant)
        }
        Command::History { view, limit, plans } => history(&view, limit, plans, api, output).await,
    }
}

/// Shows the last `limit` refreshes of a view, or their query plans.
async fn history(
    view: &ViewArgs,
    limit: u32,
    plans: bool,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let limit = limit.to_string();
    let mut query = database_query(view.database.as_deref());
    query.push(("limit", &limit));
    let answer = api.get(&["views", &view.name, "history"], &query).await?;
    output.print_answer(&answer, |list: Items<Refresh>| {
        if plans { report::plans(&list.items) } else { report::history(&list.items) }
    })
}

/// The parameter that names a database.
fn database_query(database: Option<&str>) -> Vec<(&str, &str)> {
    database.map(|name| ("database", name)).into_iter().collect()
}

/// A call about one view.
async fn call_view(
    method: Method,
    view: &ViewArgs,
    subpath: &[&str],
    body: Option<Json>,
    api: &Api,
) -> Result<Json, Failure> {
    let path = [&["views", view.name.as_str()], subpath].concat();
    let query = database_query(view.database.as_deref());
    api.call(method, &path, &query, body).await
}

async fn explain(arguments: cli::ExplainView, api: &Api, output: Output) -> Result<(), Failure> {
    let database = arguments.database;
    let answer = match arguments.name {
        Some(name) => {
            call_view(Method::GET, &ViewArgs { name, database }, &["explain"], None, api).await?
        }
        None => validate(&arguments.query, database, api).await?,
    };
    output.print_answer(&answer, explain::text)
}

/// Nodes and edges are made here: the list of views says of each what it reads.
async fn graph(database: Option<&str>, api: &Api, output: Output) -> Result<(), Failure> {
    let answer = api.get(&["views"], &database_query(database)).await?;
    let list: Items<View> = output::decode(&answer)?;
    if output.is_json() {
        output.print_json(&graph::to_report(&list.items))
    } else {
        output.print_text(&graph::text(&list.items))
    }
}

async fn create(view: cli::CreateView, api: &Api, output: Output) -> Result<(), Failure> {
    let query = read_query(&view.query)?;
    let indexes: Vec<Vec<&str>> =
        view.indexes.iter().map(|columns| columns.split(',').map(str::trim).collect()).collect();
    let mut body = Map::new();
    body.insert("name".to_owned(), json!(view.name));
    body.insert("query".to_owned(), json!(query));
    body.insert("indexes".to_owned(), json!(indexes));
    let optional = [
        ("mode", view.mode),
        ("schedule", schedule(&view.when)),
        ("keep_changes", view.keep_changes.map(|retention| retention.show())),
        ("on_change_enqueue", view.on_change_enqueue),
        ("owner", view.owner),
        ("database", view.database),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            body.insert(name.to_owned(), json!(value));
        }
    }
    let making = api.post(&["views"], Json::Object(body));
    let made = output.wait_with_spinner("filling the view", making).await;
    let answer = made.map_err(|failure| add_query_excerpt(failure, &query))?;
    output.print_answer(&answer, |view: View| {
        format!("view {} is created\n\n{}", view.name, report::describe(&view))
    })
}

/// What the options say of when a view is refreshed.
fn schedule(when: &cli::ScheduleArgs) -> Option<String> {
    match (when.lag, &when.cron, when.manual) {
        (Some(lag), _, _) => Some(lag.show()),
        (None, Some(cron), _) => Some(cron.clone()),
        (None, None, true) => Some("manual".to_owned()),
        (None, None, false) => None,
    }
}

fn alteration_body(alter: &cli::Alter) -> Json {
    let mut body = Map::new();
    if let Some(mode) = &alter.mode {
        body.insert("mode".to_owned(), json!(mode));
    }
    match schedule(&alter.when) {
        Some(schedule) => body.insert("schedule".to_owned(), json!(schedule)),
        None if alter.default_schedule => body.insert("schedule".to_owned(), Json::Null),
        None => None,
    };
    if let Some(retention) = alter.keep_changes {
        let kept = match retention {
            cli::ChangeRetention::For(span) => json!(span.show()),
            cli::ChangeRetention::Off => Json::Null,
        };
        body.insert("keep_changes".to_owned(), kept);
    }
    if let Some(queue) = &alter.on_change_enqueue {
        let queue = Some(queue).filter(|queue| *queue != "none");
        body.insert("on_change_enqueue".to_owned(), json!(queue));
    }
    if alter.suspend || alter.resume {
        body.insert("active".to_owned(), json!(alter.resume));
    }
    Json::Object(body)
}

async fn validate(
    query: &cli::ViewQuery,
    database: Option<String>,
    api: &Api,
) -> Result<Json, Failure> {
    let query = read_query(query)?;
    let body = json!({"query": query, "database": database});
    let answer = api.post(&["view-validations"], body).await;
    answer.map_err(|failure| add_query_excerpt(failure, &query))
}

/// The query that was given, or that the file holds.
fn read_query(query: &cli::ViewQuery) -> Result<String, Failure> {
    let path = match (&query.sql, &query.file) {
        (Some(sql), _) => return Ok(sql.clone()),
        (None, Some(path)) => path,
        (None, None) => return Err(Failure::usage("a query is missing: give --sql or --file")),
    };
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    Ok(text)
}

/// The characters of a query that are repeated where something is wrong with them.
const EXCERPT_CHARS: usize = 40;

/// The failure with the place in the query that it is about.
fn add_query_excerpt(failure: Failure, query: &str) -> Failure {
    let Some((before, rest)) =
        failure.position.and_then(|position| query.split_at_checked(position.checked_sub(1)?))
    else {
        return failure;
    };
    let line = before.matches('\n').count() + 1;
    let excerpt: String = rest.lines().next().unwrap_or("").chars().take(EXCERPT_CHARS).collect();
    match excerpt.trim() {
        "" => failure,
        here => failure.with_hint(format!("it is in line {line} of the query: {here}")),
    }
}

async fn verify(view: &ViewArgs, api: &Api, output: Output) -> Result<(), Failure> {
    let comparing = call_view(Method::POST, view, &["verify"], Some(json!({})), api);
    let answer = output.wait_with_spinner("comparing", comparing).await?;
    let verification: Verification = output::decode(&answer)?;
    output.print_answer(&answer, |found: Verification| found.describe(&view.name))?;
    if verification.equal {
        Ok(())
    } else {
        let message = format!("view {} differs from the result of its query", view.name);
        let hint = format!("`egret view repair {}` rebuilds it", view.name);
        Err(Failure::failed("view_differs", message).with_hint(hint))
    }
}

#[cfg(test)]
mod tests;
