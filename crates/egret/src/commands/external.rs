//! `egret check`: an external PostgreSQL, or what is in schema `egret` of the databases of the
//! running server.

use egret_postgres::PostgresConfig;
use egret_postgres::external::{self, CheckStatus};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::uninstall::Obstacle;
use crate::api::Api;
use crate::configuration::Configuration;
use crate::failure::Failure;
use crate::output::{self, Output, listing};

/// The connection string of the command line, else of the configuration.
pub(super) fn parse_connection(
    given: Option<String>,
    configuration: &Configuration,
) -> Result<egret_postgres::tokio_postgres::Config, Failure> {
    let configured: PostgresConfig = configuration.section()?;
    let url = given.or(configured.url.clone()).ok_or_else(|| {
        Failure::usage("no server is named: give its connection string, or set postgres.url")
    })?;
    // Another part of the program may have installed the same provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let timeout = configured.connect_timeout.duration();
    external::parse_with_timeout(&url, "check", timeout)
        .map_err(|error| Failure::failed("postgres_url", error.to_string()))
}

/// Whether the configuration names an external server.
pub(super) fn is_configured(configuration: &Configuration) -> Result<bool, Failure> {
    let configured: PostgresConfig = configuration.section()?;
    Ok(configured.url.is_some())
}

pub(super) async fn check(
    postgres_url: Option<String>,
    configuration: &Configuration,
    output: Output,
) -> Result<(), Failure> {
    let connection = parse_connection(postgres_url, configuration)?;
    let report = external::check(&connection).await.map_err(into_failure)?;
    let status_name = |status| match status {
        CheckStatus::Met => "ok",
        CheckStatus::Reduced => "reduced",
        CheckStatus::Missing => "missing",
    };
    let checks = report.checks.iter().chain(&report.grants);
    if output.is_json() {
        let findings: Vec<_> = checks
            .map(|finding| json!({"subject": finding.subject, "verdict": status_name(finding.status), "detail": finding.detail}))
            .collect();
        output.print_json(
            &json!({"version": report.version, "usable": report.is_usable(), "findings": findings}),
        )?;
    } else {
        let rows = checks.map(|found| {
            vec![
                found.subject.to_owned(),
                status_name(found.status).to_owned(),
                found.detail.clone(),
            ]
        });
        output.print_text(&listing(&["subject", "verdict", "detail"], rows))?;
    }
    if report.is_usable() {
        return Ok(());
    }
    Err(Failure::failed("postgres_unusable", "egret cannot work with this server"))
}

/// Looks into the databases of the running server for objects of users in schema `egret`, or on
/// what Egret has made.
pub(super) async fn check_running(api: &Api, output: Output) -> Result<(), Failure> {
    let answer = api.get(&["installations"], &[]).await?;
    let list: InstallationChecks = output::decode(&answer)?;
    output.print_answer(&answer, |_: Json| {
        let unreachable_rows = list
            .unreachable
            .iter()
            .map(|name| row(name, "missing", "no session can be opened in it"));
        let rows = list.items.iter().flat_map(|installation| {
            let strays = installation.obstacles.iter();
            let mut rows: Vec<_> = strays
                .filter_map(|stray| {
                    let command = stray.command.as_ref()?;
                    Some(row(
                        &installation.database,
                        "reduced",
                        &format!("{}: {command};", stray.object),
                    ))
                })
                .collect();
            if rows.is_empty() {
                let detail = "schema egret contains only objects of Egret";
                rows.push(row(&installation.database, "ok", detail));
            }
            let indexes = installation.indexes.iter();
            rows.extend(indexes.map(|index| {
                let detail = format!("{index}: yours, on a table of Egret");
                row(&installation.database, "ok", &detail)
            }));
            rows
        });
        listing(&["database", "verdict", "detail"], rows.chain(unreachable_rows))
    })
}

fn row(subject: &str, verdict: &str, detail: &str) -> Vec<String> {
    [subject, verdict, detail].map(str::to_owned).to_vec()
}

/// The installations that `egret check` reads, one a database.
#[derive(Debug, Deserialize)]
struct InstallationChecks {
    items: Vec<InstallationCheck>,
    #[serde(default)]
    unreachable: Vec<String>,
}

/// The fields of an installation that `egret check` reads.
#[derive(Debug, Deserialize)]
struct InstallationCheck {
    database: String,
    obstacles: Vec<Obstacle>,
    #[serde(default)]
    indexes: Vec<String>,
}

pub(super) fn into_failure(error: egret_postgres::PostgresError) -> Failure {
    use egret_base::CodedError;
    Failure::failed(error.code(), error.to_string())
}
