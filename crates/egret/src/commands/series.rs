//! `egret series …`: every metric, answered at once.

mod admin;
mod cardinality;
mod exchange;
mod monitor;
mod promqltest;
mod query;

use serde::Deserialize;

use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, decode, printable};

pub(crate) use promqltest::run as promqltest;

/// An answer of Prometheus's API.
#[derive(Deserialize)]
struct Success<T> {
    data: T,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    infos: Vec<String>,
}

impl<T> Success<T> {
    /// Says what is noteworthy where it does not get into a program's way.
    fn print_notes(&self, output: Output) {
        for note in self.warnings.iter().chain(&self.infos) {
            output.print_remark(&printable(note));
        }
    }
}

pub(crate) async fn run(
    command: cli::SeriesCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    use cli::SeriesCommand;
    match command {
        SeriesCommand::Query { query, at } => {
            query::instant(&query, at.as_deref(), api, output).await
        }
        SeriesCommand::Range(range) => query::range(&range, api, output).await,
        SeriesCommand::Labels { label, selectors } => {
            labels(label.as_deref(), &selectors, api, output).await
        }
        SeriesCommand::Import { file, format } => {
            exchange::import(&file, format, api, output).await
        }
        SeriesCommand::Export(export) => exchange::export(&export, api, output).await,
        SeriesCommand::Delete(delete) => admin::delete(&delete, api, output).await,
        SeriesCommand::Snapshot { skip_head } => admin::snapshot(skip_head, api, output).await,
        SeriesCommand::Cardinality { top, last } => cardinality::show(top, last, api, output).await,
        SeriesCommand::Monitor(command) => monitor::run(command, api, output).await,
        // It needs no server, and was run without one.
        SeriesCommand::Promqltest { .. } => Ok(()),
    }
}

async fn labels(
    label: Option<&str>,
    selectors: &[String],
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let query: Vec<(&str, &str)> =
        selectors.iter().map(|selector| ("match[]", selector.as_str())).collect();
    let answer = match label {
        Some(label) => api.get_prometheus(&["label", label, "values"], &query).await?,
        None => api.get_prometheus(&["labels"], &query).await?,
    };
    if output.is_json() {
        return output.print_json(&answer);
    }
    let names: Success<Vec<String>> = decode(&answer)?;
    names.print_notes(output);
    if names.data.is_empty() {
        output.print_remark(match label {
            Some(_) => "no series has that label: `egret series labels` lists the existing ones",
            None => "no series",
        });
        return Ok(());
    }
    output.print_text(&printable(&names.data.join("\n")))
}
