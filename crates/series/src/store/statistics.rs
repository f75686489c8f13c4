//! The statistics of a PostgreSQL server as metrics, named as postgres_exporter names them, so that
//! its dashboards and alert rules fit. Versions 15 to 18.

mod application_names;
mod queries;

use std::collections::BTreeSet;
use std::time::Instant;

use egret_base::lifecycle::BoxFuture;
use egret_metrics_model::METRIC_NAME;
use egret_metrics_wire::MetricKind;
use egret_metrics_wire::exposition::{TextFormat, append_metadata, append_sample};
use egret_postgres::Databases;
use egret_postgres::tokio_postgres::types::{ToSql, Type};
use egret_postgres::tokio_postgres::{self, Client, Row};
use tokio::sync::Mutex;

use self::application_names::ApplicationNames;
use self::queries::Family;
use crate::core::scrape::Collect;

/// Limits of the statistics that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatisticsLimits {
    /// Tables, those with the most rows.
    pub tables_max: u32,
    /// Statements, those that took the longest in all.
    pub statements_max: u32,
    /// Groups of sessions, the largest.
    pub activities_max: u32,
    /// Names that clients have given their sessions; those of all others count together, as
    /// `other`.
    pub application_names_max: u32,
}

impl Default for StatisticsLimits {
    fn default() -> Self {
        Self {
            tables_max: 1_000,
            statements_max: 100,
            activities_max: 500,
            application_names_max: 50,
        }
    }
}

/// Reads the statistics of one server, over one connection that is made again when it breaks.
pub struct PostgresStatistics {
    databases: Databases,
    limits: StatisticsLimits,
    session: Mutex<Option<Session>>,
    application_names: Mutex<ApplicationNames>,
}

struct Session {
    client: Client,
    families: Vec<Family>,
}

/// What all sessions count as whose application name is not shown.
const OTHER: &str = "other";

impl PostgresStatistics {
    /// Of the server of these databases. The role of their sessions needs `pg_monitor` to see
    /// everything.
    pub fn new(databases: Databases, limits: StatisticsLimits) -> Self {
        Self { databases, limits, session: Mutex::default(), application_names: Mutex::default() }
    }

    async fn open_session(&self) -> Result<Session, String> {
        let client =
            self.databases.maintenance_client().await.map_err(|error| error.to_string())?;
        let querying = async {
            client.batch_execute(queries::session_settings()).await?;
            let version = client.query_one(queries::server_version(), &[]).await?.get(0);
            let statements = client.query_opt(queries::statements_extension(), &[]).await?;
            Ok((version, statements.map(|row| (row.get(0), row.get(1)))))
        };
        let result: Result<(i32, Option<(String, bool)>), tokio_postgres::Error> = querying.await;
        let (version, statements) = result.map_err(|error| egret_base::error::chain(&error))?;
        let families = queries::families(version, statements);
        Ok(Session { client, families })
    }

    async fn exposition(&self) -> String {
        let mut session_guard = self.session.lock().await;
        let mut text = String::new();
        if session_guard.as_ref().is_none_or(|session| session.client.is_closed()) {
            match self.open_session().await {
                Ok(session) => *session_guard = Some(session),
                Err(error) => {
                    tracing::debug!(error, "cannot connect to PostgreSQL for statistics");
                    *session_guard = None;
                }
            }
        }
        let Some(session) = session_guard.as_ref() else {
            append_gauge("pg_up", "Whether the server could be reached.", 0.0, &mut text);
            return text;
        };
        append_gauge("pg_up", "Whether the server could be reached.", 1.0, &mut text);
        let mut failed_count = 0;
        for family in &session.families {
            if let Err(error) = self.append_family(&session.client, family, &mut text).await {
                failed_count += 1;
                let error = egret_base::error::chain(&error);
                tracing::debug!(
                    family = family.prefix,
                    error,
                    "cannot read some statistics of PostgreSQL"
                );
            }
        }
        let help = "Families of statistics that could not be read.";
        append_gauge("pg_exporter_last_scrape_error", help, f64::from(failed_count), &mut text);
        text
    }

    async fn append_family(
        &self,
        client: &Client,
        family: &Family,
        text: &mut String,
    ) -> Result<(), tokio_postgres::Error> {
        let row_limit = family.row_limit.map(|most| i64::from(most(&self.limits)));
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            row_limit.iter().map(|most| most as _).collect();
        if !family.has_application_names {
            let rows = client.query(&*family.text, &parameters).await?;
            return append_rows(family, &rows, text);
        }
        let mut names = self.application_names.lock().await;
        let now = Instant::now();
        let shown_names = names.recent_names(now);
        let max = i64::from(self.limits.application_names_max);
        let more_max = max - i64::try_from(shown_names.len()).unwrap_or(max).min(max);
        parameters.extend([&shown_names as &(dyn ToSql + Sync), &more_max]);
        let rows = client.query(&*family.text, &parameters).await?;
        for row in &rows {
            match row.try_get("application_name")? {
                OTHER => {}
                name => names.record(name, now),
            }
        }
        append_rows(family, &rows, text)
    }
}

impl Collect for PostgresStatistics {
    fn collect(&self) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async { Ok(self.exposition().await) })
    }
}

fn append_gauge(name: &str, help: &str, value: f64, text: &mut String) {
    let format = TextFormat::Prometheus;
    append_metadata(name, MetricKind::Gauge, help, "", format, text);
    append_sample([(METRIC_NAME, name)].into_iter(), value, None, format, text);
}

/// Columns of text are labels, columns of numbers are metrics; one named `metric_name` names the
/// metric of its row.
fn append_rows(
    family: &Family,
    rows: &[Row],
    text: &mut String,
) -> Result<(), tokio_postgres::Error> {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    let columns = first.columns().iter().enumerate();
    let (labels, values): (Vec<_>, Vec<_>) = columns
        .map(|(at, column)| (at, column.name().to_owned(), column.type_().clone()))
        .partition(|(_, _, kind)| *kind == Type::TEXT);
    let format = TextFormat::Prometheus;
    let mut described_names = BTreeSet::new();
    for (value_index, column, _) in &values {
        for row in rows {
            let Some(value) = row.try_get::<_, Option<f64>>(*value_index)? else {
                continue;
            };
            let label_pairs: Vec<(&str, &str)> = labels
                .iter()
                .map(|(at, name, _)| (name.as_str(), row.get::<_, Option<&str>>(*at).unwrap_or("")))
                .collect();
            let row_name = label_pairs.iter().find(|(name, _)| *name == "metric_name");
            let suffix = row_name.map_or(column.as_str(), |(_, name)| name);
            let name = format!("{}_{suffix}", family.prefix);
            if described_names.insert(name.clone()) {
                append_metadata(&name, family.kind(suffix), family.help, "", format, text);
            }
            let series = label_pairs
                .iter()
                .copied()
                .filter(|(name, value)| *name != "metric_name" && !value.is_empty());
            let series = std::iter::once((METRIC_NAME, name.as_str())).chain(series);
            append_sample(series, value, None, format, text);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
