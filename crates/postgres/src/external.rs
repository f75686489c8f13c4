//! An external server: what Egret needs of it, checked and reported line by line.

mod connect;
mod managed_lock;
mod parameters;
mod passfile;
pub(crate) mod tls;

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::config::TargetSessionAttrs;

pub use self::connect::connect;
use self::connect::keeps_session;
pub use self::managed_lock::ManagedLock;
use self::tls::TlsSettings;
use crate::error::{PostgresError, TRANSACTION_MODE, server_error};
use crate::installation::{self, EXAMINATION_STEP_MAX};
use crate::pool::{self, CONNECT_TIMEOUT, within_answer_time};
use crate::provision::SUPPORTED_MAJORS;
use crate::session_settings;

/// The result of one check of a server: a line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name of the requirement.
    pub subject: &'static str,
    /// Whether the server meets the requirement.
    pub status: CheckStatus,
    /// What was found and, if the requirement is not met, what to do.
    pub detail: String,
}

/// Whether a requirement is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStatus {
    /// The requirement is met.
    Met,
    /// Egret works, with reduced functions.
    Reduced,
    /// Egret cannot work with this server.
    Missing,
}

/// What an external server offers.
#[derive(Clone, Debug)]
pub struct CompatibilityReport {
    /// The server's version as it prints it.
    pub version: String,
    /// Every requirement with what was found.
    pub checks: Vec<Check>,
    /// Each GRANT that Egret's role lacks for some view or metric; not needed without those.
    pub grants: Vec<Check>,
}

impl CompatibilityReport {
    /// Whether Egret can work with the server.
    pub fn is_usable(&self) -> bool {
        self.checks.iter().all(|finding| finding.status != CheckStatus::Missing)
    }
}

/// How long a silent connection is believed before the kernel asks whether the other side is there;
/// its own default is two hours.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// How long sent bytes may stay unacknowledged before the connection is given up.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

/// Reads a connection string, as libpq does: URL or keywords, completed by a service file, a
/// password file and the environment.
///
/// What a failover needs is set where the string does not: of several hosts the one that accepts
/// writes, and bounds on how long one that is gone is waited for.
///
/// # Errors
/// [`PostgresError::Url`]; the message never repeats the string, which may hold a password.
pub fn parse(url: &str, engine: &str) -> Result<tokio_postgres::Config, PostgresError> {
    parse_with_timeout(url, engine, CONNECT_TIMEOUT)
}

/// [`parse`] with a `connect_timeout` for strings without one.
///
/// # Errors
/// Those of [`parse`].
pub fn parse_with_timeout(
    url: &str,
    engine: &str,
    connect_timeout: Duration,
) -> Result<tokio_postgres::Config, PostgresError> {
    let url_error = |reason: String| PostgresError::Url { reason };
    // A variable that is not UTF-8 is none of libpq's.
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut parameters = parameters::parse(url, &variable).map_err(url_error)?;
    parameters::adapt_for_driver(&mut parameters).map_err(url_error)?;
    let tls = TlsSettings::take_from(&mut parameters).map_err(url_error)?;
    let user_timeout = parameters::take_user_timeout(&mut parameters).map_err(url_error)?;
    let mut connection: tokio_postgres::Config = parameters::to_keywords(&parameters)
        .parse()
        .map_err(|error: tokio_postgres::Error| url_error(egret_base::error::chain(&error)))?;
    tls::register_config(&connection, &tls).map_err(url_error)?;
    connection.application_name(format!("egret/{engine}"));
    let hosts = connection.get_hosts().len().max(connection.get_hostaddrs().len());
    if hosts > 1 && connection.get_target_session_attrs() == TargetSessionAttrs::Any {
        connection.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if connection.get_connect_timeout().is_none() {
        connection.connect_timeout(connect_timeout);
    }
    connection.tcp_user_timeout(user_timeout.unwrap_or(UNACKNOWLEDGED_MAX));
    connection.keepalives_idle(connection.get_keepalives_idle().min(KEEPALIVE_IDLE));
    Ok(connection)
}

/// Connects and examines version, rights and pooling.
///
/// # Errors
/// [`PostgresError`] when the server cannot be reached at all, or stops answering; what it lacks is
/// in the report.
pub async fn check(
    connection: &tokio_postgres::Config,
) -> Result<CompatibilityReport, PostgresError> {
    check_within(connection, EXAMINATION_STEP_MAX).await
}

/// Examines a server as [`check`] does, which may take `step_max` for each step.
///
/// # Errors
/// Those of [`check`].
pub async fn check_within(
    connection: &tokio_postgres::Config,
    step_max: Duration,
) -> Result<CompatibilityReport, PostgresError> {
    let client = pool::connect_with_defaults(connection).await?;
    let in_session_mode =
        pool::within_timeout(connection, begin_check(connection, &client)).await?;
    let (reading_version, reading_rights) = ("read the version", "read the rights");
    let version = read_version(&client);
    let version = within_answer_time(step_max, reading_version, version).await?;
    let checking_version = check_version(&client, &version);
    let checking_right = check_schema_right(&client);
    let checking_primary = check_primary(&client);
    let mut checks = vec![
        within_answer_time(step_max, reading_version, checking_version).await?,
        within_answer_time(step_max, reading_rights, checking_right).await?,
        within_answer_time(step_max, "ask for the server's role", checking_primary).await?,
        check_pooling(in_session_mode),
    ];
    let checking_schema = check_schema_objects(&client);
    checks.extend(within_answer_time(step_max, "look at schema egret", checking_schema).await?);
    let grants = missing_grants(&client);
    let grants = within_answer_time(step_max, reading_rights, grants).await?;
    Ok(CompatibilityReport { version, checks, grants })
}

/// Gives the session of a check its settings. Returns whether it stays one session.
async fn begin_check(
    connection: &tokio_postgres::Config,
    client: &Client,
) -> Result<bool, PostgresError> {
    let in_session_mode = keeps_session(connection, client).await?;
    if in_session_mode {
        session_settings::apply(connection, client).await?;
    } else {
        // `SET` would change the session for other clients, too. This transaction never commits.
        let begin = "BEGIN; SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL quote_all_identifiers = off";
        let result = client.batch_execute(begin).await;
        result.map_err(server_error("begin"))?;
    }
    Ok(in_session_mode)
}

async fn read_version(client: &Client) -> Result<String, PostgresError> {
    let sql = "SELECT pg_catalog.current_setting('server_version')";
    let row = client.query_one(sql, &[]).await;
    Ok(row.map_err(server_error("read the version"))?.get(0))
}

/// Privileges that the role lacks for views and metrics, the first ones only.
async fn missing_grants(client: &Client) -> Result<Vec<Check>, PostgresError> {
    let rows = client
        .query(include_str!("external/missing_grants.sql"), &[])
        .await
        .map_err(server_error("read the rights"))?;
    let mut details: Vec<String> = rows
        .iter()
        .map(|row| format!("{}: {}", row.get::<_, &str>(1), row.get::<_, &str>(0)))
        .collect();
    let total: i64 = rows.first().map_or(0, |row| row.get(2));
    let more = usize::try_from(total).unwrap_or(0).saturating_sub(rows.len());
    if more > 0 {
        details.push(format!("{more} more, which are shown once these are granted"));
    }
    let checks = details.into_iter().map(|detail| Check {
        subject: "grants",
        status: CheckStatus::Reduced,
        detail,
    });
    Ok(checks.collect())
}

async fn check_version(client: &Client, version: &str) -> Result<Check, PostgresError> {
    let number: i32 = client
        .query_one("SELECT pg_catalog.current_setting('server_version_num')::int4", &[])
        .await
        .map_err(server_error("read the version"))?
        .get(0);
    let major = u32::try_from(number / 10_000).unwrap_or(0);
    let is_supported = SUPPORTED_MAJORS.contains(&major);
    Ok(Check {
        subject: "version",
        status: if is_supported { CheckStatus::Met } else { CheckStatus::Missing },
        detail: if is_supported {
            format!("PostgreSQL {version}")
        } else {
            format!("PostgreSQL {version}: Egret works with 15, 16, 17 and 18")
        },
    })
}

async fn check_schema_right(client: &Client) -> Result<Check, PostgresError> {
    let row = client
        .query_one(include_str!("external/schema_right.sql"), &[])
        .await
        .map_err(server_error("read the rights"))?;
    let (role, database): (String, String) = (row.get(0), row.get(1));
    let (may_create, exists, owns): (bool, bool, bool) = (row.get(2), row.get(3), row.get(4));
    let is_met = if exists { owns } else { may_create };
    let detail = match (exists, is_met) {
        (true, true) => format!("{role} owns schema egret in {database}"),
        (true, false) => {
            format!("schema egret in {database} belongs to another role: grant that role to {role}")
        }
        (false, true) => format!("{role} may create schema egret in {database}"),
        (false, false) => {
            format!("{role} may not create schemas: GRANT CREATE ON DATABASE {database} TO {role}")
        }
    };
    Ok(Check {
        subject: "rights",
        status: if is_met { CheckStatus::Met } else { CheckStatus::Missing },
        detail,
    })
}

/// Looks for objects of users in schema `egret`; `None` if there is no such schema.
async fn check_schema_objects(client: &Client) -> Result<Option<Check>, PostgresError> {
    let inventory = match installation::inventory(client).await {
        Ok(found) => found,
        Err(error @ PostgresError::ForeignSchema { .. }) => {
            return Ok(Some(Check {
                subject: "schema",
                status: CheckStatus::Missing,
                detail: error.to_string(),
            }));
        }
        Err(error) => return Err(error),
    };
    let Some(found) = inventory else {
        return Ok(None);
    };
    let strays: Vec<String> = found
        .obstacles
        .iter()
        .filter(|obstacle| obstacle.command.is_some())
        .map(ToString::to_string)
        .collect();
    Ok(Some(Check {
        subject: "schema",
        status: if strays.is_empty() { CheckStatus::Met } else { CheckStatus::Reduced },
        detail: if strays.is_empty() {
            let indexes = found.indexes.iter().map(|index| format!("; index {index} is yours"));
            let indexes: String = indexes.collect();
            format!("schema egret contains only objects of Egret{indexes}")
        } else {
            format!(
                "objects of users in schema egret, or attached to objects of Egret: {}",
                strays.join("; ")
            )
        },
    }))
}

async fn check_primary(client: &Client) -> Result<Check, PostgresError> {
    let is_standby: bool = client
        .query_one("SELECT pg_catalog.pg_is_in_recovery()", &[])
        .await
        .map_err(server_error("ask for the server's role"))?
        .get(0);
    Ok(Check {
        subject: "primary",
        status: if is_standby { CheckStatus::Missing } else { CheckStatus::Met },
        detail: if is_standby {
            "this is a standby: add target_session_attrs=read-write and the primary's host"
                .to_owned()
        } else {
            "the server accepts writes".to_owned()
        },
    })
}

fn check_pooling(in_session_mode: bool) -> Check {
    Check {
        subject: "session",
        status: if in_session_mode { CheckStatus::Met } else { CheckStatus::Missing },
        detail: if in_session_mode {
            "a connection keeps its session".to_owned()
        } else {
            TRANSACTION_MODE.to_owned()
        },
    }
}

#[cfg(test)]
mod tests;
