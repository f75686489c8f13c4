//! `egret check`: a PostgreSQL that somebody else runs.

use egret_postgres::PostgresConfig;
use egret_postgres::external::{self, Verdict};
use serde_json::json;

use crate::configuration::Configuration;
use crate::failure::Failure;
use crate::output::{Output, listing};

/// The connection string of the command line, else of the configuration.
pub(super) fn connection(
    given: Option<String>,
    configuration: &Configuration,
) -> Result<egret_postgres::tokio_postgres::Config, Failure> {
    let configured: PostgresConfig = configuration.section()?;
    let url = given.or(configured.url).ok_or_else(|| {
        Failure::usage("no server is named: give its connection string, or set postgres.url")
    })?;
    // Another part of the program may have installed the same provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    external::parse(&url, "check")
        .map_err(|error| Failure::failed("postgres_url", error.to_string()))
}

pub(super) async fn check(
    given: Option<String>,
    configuration: &Configuration,
    output: Output,
) -> Result<(), Failure> {
    let connection = connection(given, configuration)?;
    let report = external::check(&connection).await.map_err(failed)?;
    let word = |verdict| match verdict {
        Verdict::Met => "ok",
        Verdict::Reduced => "reduced",
        Verdict::Missing => "missing",
    };
    if output.is_json() {
        let findings: Vec<_> = report
            .findings
            .iter()
            .map(|found| json!({"subject": found.subject, "verdict": word(found.verdict), "detail": found.detail}))
            .collect();
        output.json(
            &json!({"version": report.version, "usable": report.usable(), "findings": findings}),
        )?;
    } else {
        let rows = report.findings.iter().map(|found| {
            vec![
                found.subject.to_owned(),
                word(found.verdict).to_owned(),
                found.detail.clone(),
            ]
        });
        output.text(&listing(&["subject", "verdict", "detail"], rows))?;
    }
    if report.usable() {
        return Ok(());
    }
    Err(Failure::failed(
        "postgres_unusable",
        "egret cannot work with this server",
    ))
}

pub(super) fn failed(error: egret_postgres::PostgresError) -> Failure {
    use egret_base::Coded;
    Failure::failed(error.code(), error.to_string())
}
