//! A server that somebody else runs: what Egret needs of it, checked and reported line by line.

mod parameters;
mod passfile;
mod tls;

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_postgres::Client;
use tokio_postgres::config::TargetSessionAttrs;

use self::tls::TlsSettings;
use crate::error::{PostgresError, server};
use crate::installation;
use crate::lock_owner::{self, LockOutcome, LockOwner};
use crate::pool::{self, CONNECT_TIMEOUT};
use crate::provision::SUPPORTED;
use crate::session_settings;

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub subject: &'static str,
    /// Whether it is as Egret needs it.
    pub verdict: Verdict,
    /// What was found and, where it falls short, what to do.
    pub detail: String,
}

/// Whether a requirement is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Met,
    /// Egret works, with less.
    Reduced,
    /// Egret cannot work with this server.
    Missing,
}

/// What an external server offers.
#[derive(Clone, Debug)]
pub struct Report {
    /// The server's version as it prints it.
    pub version: String,
    /// Every requirement with what was found.
    pub findings: Vec<Finding>,
    /// Each GRANT that Egret's role lacks for some view or metric: who has none of these needs none of them.
    pub grants: Vec<Finding>,
}

impl Report {
    /// Whether Egret can work with the server.
    pub fn usable(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.verdict != Verdict::Missing)
    }
}

/// How long a silent connection is believed before the kernel asks whether the other side is there;
/// its own default is two hours.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// How long sent bytes may stay unacknowledged before the connection is given up.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

/// Reads a connection string, as libpq does: URL or keywords, completed by a service file, a password
/// file and the environment.
///
/// What a failover needs is set where the string does not: of several hosts the one that accepts
/// writes, and bounds on how long one that is gone is waited for.
///
/// # Errors
/// [`PostgresError::Url`]; the message never repeats the string, which may hold a password.
pub fn parse(url: &str, engine: &str) -> Result<tokio_postgres::Config, PostgresError> {
    parse_with_timeout(url, engine, CONNECT_TIMEOUT)
}

/// Reads a connection string as [`parse`] does. `connect_timeout` holds where the string does not say.
///
/// # Errors
/// Those of [`parse`].
pub fn parse_with_timeout(
    url: &str,
    engine: &str,
    connect_timeout: Duration,
) -> Result<tokio_postgres::Config, PostgresError> {
    let refused = |reason: String| PostgresError::Url { reason };
    // A variable that is not UTF-8 is none of libpq's.
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut parameters = parameters::read(url, &variable).map_err(refused)?;
    parameters::adapt(&mut parameters).map_err(refused)?;
    let tls = TlsSettings::take(&mut parameters).map_err(refused)?;
    let user_timeout = parameters::take_user_timeout(&mut parameters).map_err(refused)?;
    let mut connection: tokio_postgres::Config = parameters::keywords(&parameters)
        .parse()
        .map_err(|error: tokio_postgres::Error| refused(egret_base::error::chain(&error)))?;
    tls::remember(&connection, &tls).map_err(refused)?;
    connection.application_name(format!("egret/{engine}"));
    let hosts = connection
        .get_hosts()
        .len()
        .max(connection.get_hostaddrs().len());
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

/// Certificates are verified against those this machine trusts, unless the connection string names
/// others.
pub(crate) fn tls(
    connection: &tokio_postgres::Config,
) -> Result<rustls::ClientConfig, PostgresError> {
    if let Some(known) = tls::known(connection) {
        return Ok(known);
    }
    static CONFIG: OnceLock<Result<rustls::ClientConfig, String>> = OnceLock::new();
    let made = CONFIG.get_or_init(|| TlsSettings::default().config());
    made.clone().map_err(|reason| PostgresError::Pool {
        reason: format!("TLS is not usable: {reason}"),
    })
}

/// Connects and examines version, rights and pooling.
///
/// # Errors
/// [`PostgresError`] when the server cannot be reached at all; what it lacks is in the report.
pub async fn check(connection: &tokio_postgres::Config) -> Result<Report, PostgresError> {
    let client = pool::connect_with_defaults(connection).await?;
    let in_session_mode = keeps_session(connection, &client).await?;
    if in_session_mode {
        session_settings::pin(connection, &client).await?;
    } else {
        // Settings of a session would be those of others, too. This transaction is not committed.
        let begin = "BEGIN; SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL quote_all_identifiers = off";
        let begun = client.batch_execute(begin).await;
        begun.map_err(server("begin"))?;
    }
    let version: String = client
        .query_one("SELECT pg_catalog.current_setting('server_version')", &[])
        .await
        .map_err(server("read the version"))?
        .get(0);
    let mut findings = vec![
        check_version(&client, &version).await?,
        check_schema_right(&client).await?,
        check_primary(&client).await?,
        pooling(in_session_mode),
    ];
    findings.extend(check_schema_objects(&client).await?);
    let grants = missing_grants(&client).await?;
    Ok(Report {
        version,
        findings,
        grants,
    })
}

/// What the role lacks for some view or metric, the first of it.
async fn missing_grants(client: &Client) -> Result<Vec<Finding>, PostgresError> {
    let rows = client
        .query(include_str!("external/missing_grants.sql"), &[])
        .await
        .map_err(server("read the rights"))?;
    let mut details: Vec<String> = rows
        .iter()
        .map(|row| format!("{}: {}", row.get::<_, &str>(1), row.get::<_, &str>(0)))
        .collect();
    let total: i64 = rows.first().map_or(0, |row| row.get(2));
    let more = usize::try_from(total)
        .unwrap_or(0)
        .saturating_sub(rows.len());
    if more > 0 {
        details.push(format!(
            "{more} more, which are shown once these are granted"
        ));
    }
    let findings = details.into_iter().map(|detail| Finding {
        subject: "grants",
        verdict: Verdict::Reduced,
        detail,
    });
    Ok(findings.collect())
}

async fn check_version(client: &Client, version: &str) -> Result<Finding, PostgresError> {
    let number: i32 = client
        .query_one(
            "SELECT pg_catalog.current_setting('server_version_num')::int4",
            &[],
        )
        .await
        .map_err(server("read the version"))?
        .get(0);
    let major = u32::try_from(number / 10_000).unwrap_or(0);
    let supported = SUPPORTED.contains(&major);
    Ok(Finding {
        subject: "version",
        verdict: if supported {
            Verdict::Met
        } else {
            Verdict::Missing
        },
        detail: if supported {
            format!("PostgreSQL {version}")
        } else {
            format!("PostgreSQL {version}: Egret works with 15, 16, 17 and 18")
        },
    })
}

async fn check_schema_right(client: &Client) -> Result<Finding, PostgresError> {
    let row = client
        .query_one(include_str!("external/schema_right.sql"), &[])
        .await
        .map_err(server("read the rights"))?;
    let (role, database): (String, String) = (row.get(0), row.get(1));
    let (may_create, exists, owns): (bool, bool, bool) = (row.get(2), row.get(3), row.get(4));
    let met = if exists { owns } else { may_create };
    let detail = match (exists, met) {
        (true, true) => format!("{role} owns schema egret in {database}"),
        (true, false) => {
            format!("schema egret in {database} belongs to another role: grant that role to {role}")
        }
        (false, true) => format!("{role} may create schema egret in {database}"),
        (false, false) => {
            format!("{role} may not create schemas: GRANT CREATE ON DATABASE {database} TO {role}")
        }
    };
    Ok(Finding {
        subject: "rights",
        verdict: if met { Verdict::Met } else { Verdict::Missing },
        detail,
    })
}

/// Looks for objects of users in schema `egret`; says nothing where there is no such schema.
async fn check_schema_objects(client: &Client) -> Result<Option<Finding>, PostgresError> {
    let found = match installation::inventory(client).await {
        Ok(found) => found,
        Err(error @ PostgresError::ForeignSchema { .. }) => {
            return Ok(Some(Finding {
                subject: "schema",
                verdict: Verdict::Missing,
                detail: error.to_string(),
            }));
        }
        Err(error) => return Err(error),
    };
    let Some(found) = found else {
        return Ok(None);
    };
    let strays: Vec<String> = found
        .obstacles
        .iter()
        .filter(|obstacle| obstacle.command.is_some())
        .map(ToString::to_string)
        .collect();
    Ok(Some(Finding {
        subject: "schema",
        verdict: if strays.is_empty() {
            Verdict::Met
        } else {
            Verdict::Reduced
        },
        detail: if strays.is_empty() {
            let indexes = found
                .indexes
                .iter()
                .map(|index| format!("; {index} is a user's"));
            let indexes: String = indexes.collect();
            format!("schema egret has nothing but what Egret has made{indexes}")
        } else {
            format!(
                "these are of users, in schema egret or on what Egret has made: {}",
                strays.join("; ")
            )
        },
    }))
}

async fn check_primary(client: &Client) -> Result<Finding, PostgresError> {
    let standby: bool = client
        .query_one("SELECT pg_catalog.pg_is_in_recovery()", &[])
        .await
        .map_err(server("ask for the server's role"))?
        .get(0);
    Ok(Finding {
        subject: "primary",
        verdict: if standby {
            Verdict::Missing
        } else {
            Verdict::Met
        },
        detail: if standby {
            "this is a standby: add target_session_attrs=read-write and the primary's host"
                .to_owned()
        } else {
            "the server accepts writes".to_owned()
        },
    })
}

/// Whether a connection keeps its session, without which there is no LISTEN and no lock.
///
/// A pooler in transaction mode lends the server connection of an idle client to another one, and
/// with it its session settings: set one, let a second client take a turn, and look again. Neither
/// session has Egret's settings, which others would get.
async fn keeps_session(
    connection: &tokio_postgres::Config,
    client: &Client,
) -> Result<bool, PostgresError> {
    const PROBE: &str = "SELECT pg_catalog.current_setting('egret.session_probe', true)";
    client
        .batch_execute("SET egret.session_probe = 'first'")
        .await
        .map_err(server("set a session variable"))?;
    let second = pool::connect_with_defaults(connection).await?;
    second
        .batch_execute("BEGIN; SET egret.session_probe = 'second'")
        .await
        .map_err(server("set a session variable"))?;
    let seen: Option<String> = client
        .query_one(PROBE, &[])
        .await
        .map_err(server("read a session variable"))?
        .get(0);
    second
        .batch_execute("ROLLBACK")
        .await
        .map_err(server("roll back"))?;
    Ok(seen.as_deref() == Some("first"))
}

/// Opens a session with Egret's settings where it stays one session.
///
/// # Errors
/// [`PostgresError::TransactionMode`] behind a pooler in that mode; the server's.
pub async fn connect(connection: &tokio_postgres::Config) -> Result<Client, PostgresError> {
    connect_until(connection, std::future::pending()).await
}

/// Opens a session as [`connect`] does. Its connection is dropped as soon as `end` is over.
async fn connect_until(
    connection: &tokio_postgres::Config,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<Client, PostgresError> {
    let client = pool::connect_with_defaults_until(connection, end).await?;
    // The server may freeze at any moment.
    let setting_up = async {
        if !keeps_session(connection, &client).await? {
            return Err(PostgresError::TransactionMode);
        }
        session_settings::pin(connection, &client).await
    };
    pool::within_timeout(connection, setting_up).await?;
    Ok(client)
}

/// What to do about a pooler in transaction mode.
pub const TRANSACTION_MODE: &str = "a pooler in transaction mode is in between: use its session mode (pool_mode = session) \
     or connect to the server itself";

fn pooling(in_session_mode: bool) -> Finding {
    Finding {
        subject: "session",
        verdict: if in_session_mode {
            Verdict::Met
        } else {
            Verdict::Missing
        },
        detail: if in_session_mode {
            "a connection keeps its session".to_owned()
        } else {
            TRANSACTION_MODE.to_owned()
        },
    }
}

/// A lock on a managed database, held for as long as this value is kept.
pub struct ManagedLock {
    client: Client,
    /// Dropping it drops the connection, also of a server that does not answer.
    _open: oneshot::Sender<()>,
}

/// How long a server may take to answer an empty command.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long this process may take to read an answer that has arrived.
const READ_MAX: Duration = Duration::from_secs(2);

/// The first eight bytes of SHA-256("egret/managed").
const MANAGED_KEY: i64 = 0x6b1e_04d7_c2f9_8a53;

impl ManagedLock {
    /// Whether the session that holds the lock still answers, within ten seconds.
    pub async fn is_held(&self) -> bool {
        let mut answer = pin!(self.client.batch_execute(""));
        let answered = match tokio::time::timeout(ANSWER_MAX, &mut answer).await {
            Ok(answered) => Ok(answered),
            // Where this process was paused the time is over before the answer that has arrived is read.
            Err(_) => tokio::time::timeout(READ_MAX, answer).await,
        };
        matches!(answered, Ok(Ok(())))
    }

    /// Takes the lock for this owner, also from an earlier session of the same owner that is lost.
    ///
    /// # Errors
    /// [`PostgresError::ManagedElsewhere`] with the holder when another Egret has it; [`PostgresError::NotRunning`] while an
    /// earlier session of the owner keeps it; those of [`connect`].
    pub async fn acquire(
        connection: &tokio_postgres::Config,
        owner: &LockOwner,
    ) -> Result<Self, PostgresError> {
        let (open, closed) = oneshot::channel::<()>();
        let end = async move { _ = closed.await };
        let client = connect_until(connection, end).await?;
        pool::within_timeout(connection, take(&client, owner)).await?;
        Ok(Self {
            client,
            _open: open,
        })
    }
}

/// Takes the lock of a managed server in a session, or says who has it.
async fn take(client: &Client, owner: &LockOwner) -> Result<(), PostgresError> {
    let outcome = owner.try_lock(client, MANAGED_KEY).await;
    match outcome.map_err(server("take the lock"))? {
        LockOutcome::Taken => return Ok(()),
        LockOutcome::HeldByOwnSession => return Err(lock_owner::held_by_own_session()),
        LockOutcome::HeldElsewhere => {}
    }
    let holder = client
        .query_opt(include_str!("external/lock_holder.sql"), &[&MANAGED_KEY])
        .await
        .map_err(server("look for the lock's holder"))?;
    let database: String = client
        .query_one("SELECT pg_catalog.current_database()::text", &[])
        .await
        .map_err(server("read the database's name"))?
        .get(0);
    Err(PostgresError::ManagedElsewhere {
        database,
        holder: holder.map_or_else(
            || "its session is hidden from this role".to_owned(),
            |row| row.get(0),
        ),
    })
}

#[cfg(test)]
mod tests;
