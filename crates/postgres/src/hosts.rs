//! Connections with several hosts: which of them failed, and how.

use std::cmp::Reverse;

use tokio_postgres::config::{Host, LoadBalanceHosts, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Config, Connection, Socket};

use crate::error::{PostgresError, describe, is_unknown_database, server_error};
use crate::retry;

/// The database of every server, which is used to list the other databases.
pub(crate) const MAINTENANCE: &str = "postgres";

/// Number of hosts whose errors a message shows.
const HOSTS_SHOWN_MAX: usize = 10;

/// Bytes of a host's error in a message.
const REASON_BYTES_MAX: usize = 300;

/// A session and the connection that drives it.
type Session<T> =
    (tokio_postgres::Client, Connection<Socket, <T as MakeTlsConnect<Socket>>::Stream>);

/// Connects to the first host that takes the session, in the order of the connection string.
///
/// # Errors
/// [`PostgresError::Server`] of a single host; [`PostgresError::NoHost`] with the error of each.
pub(crate) async fn connect<T>(connection: &Config, tls: T) -> Result<Session<T>, PostgresError>
where
    T: MakeTlsConnect<Socket> + Clone,
{
    let hosts = split_hosts(connection);
    // The driver draws the order of hosts among which the load is balanced.
    let is_balanced = connection.get_load_balance_hosts() == LoadBalanceHosts::Random;
    if hosts.len() < 2 || is_balanced {
        return connection.connect(tls).await.map_err(server_error("connect"));
    }
    let mut failures = Vec::new();
    for (name, host) in hosts {
        match host.connect(tls.clone()).await {
            Ok(session) => return Ok(session),
            Err(error) => failures.push(Failure { name, host, error }),
        }
    }
    let reasons = describe_failures(&failures);
    let decisive = decisive_index(&failures, &tls).await;
    Err(PostgresError::NoHost { reasons, error: failures.swap_remove(decisive).error })
}

/// A host that opened no session.
struct Failure {
    name: String,
    host: Config,
    error: tokio_postgres::Error,
}

/// Each host with its error, as far as there is room.
fn describe_failures(failures: &[Failure]) -> String {
    let shown = failures.iter().take(HOSTS_SHOWN_MAX);
    let mut reasons: Vec<String> = shown
        .map(|failure| {
            let mut reason = describe(&failure.error);
            if reason.len() > REASON_BYTES_MAX {
                reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
                reason.push('…');
            }
            format!("{}: {reason}", failure.name)
        })
        .collect();
    match failures.len().saturating_sub(HOSTS_SHOWN_MAX) {
        0 => {}
        1 => reasons.push("and another host".to_owned()),
        more => reasons.push(format!("and {more} other hosts")),
    }
    reasons.join("; ")
}

/// Index of the failure that says most about all hosts. If the primary does not have the database,
/// it is gone, whatever the other hosts answer.
async fn decisive_index<T>(failures: &[Failure], tls: &T) -> usize
where
    T: MakeTlsConnect<Socket> + Clone,
{
    let lacks_database = |failure: &Failure| is_unknown_database(&failure.error);
    if !failures.iter().all(lacks_database) {
        for (index, failure) in failures.iter().enumerate() {
            if lacks_database(failure) && is_primary(&failure.host, tls.clone()).await {
                return index;
            }
        }
    }
    let indexed = failures.iter().enumerate();
    // The first of those with the largest weight.
    let decisive = indexed.min_by_key(|(_, failure)| Reverse(weight(&failure.error)));
    decisive.map_or(0, |(place, _)| place)
}

/// Whether a host accepts writes, as far as its maintenance database shows it.
async fn is_primary<T>(host: &Config, tls: T) -> bool
where
    T: MakeTlsConnect<Socket>,
{
    let mut maintenance = host.clone();
    maintenance.dbname(MAINTENANCE).target_session_attrs(TargetSessionAttrs::ReadWrite);
    maintenance.connect(tls).await.is_ok()
}

/// How much an error of one host says about all of them. Where one may take the session later, all
/// may; and unless the primary answers, a database is gone only if no host has it, as a standby may
/// lag behind.
fn weight(error: &tokio_postgres::Error) -> u8 {
    if retry::is_transient(error) { 2 } else { u8::from(!is_unknown_database(error)) }
}

/// A connection for each host with its name; none where the numbers of hosts, addresses and ports
/// do not match, which the driver reports.
fn split_hosts(connection: &Config) -> Vec<(String, Config)> {
    let (hosts, addresses) = (connection.get_hosts(), connection.get_hostaddrs());
    let ports = connection.get_ports();
    let count = hosts.len().max(addresses.len());
    let matches_count = |length: usize| length == 0 || length == count;
    if !matches_count(hosts.len())
        || !matches_count(addresses.len())
        || !(ports.len() == 1 || matches_count(ports.len()))
    {
        return Vec::new();
    }
    (0..count)
        .map(|index| {
            let mut single = without_hosts(connection);
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            single.port(port);
            let mut name = String::new();
            if let Some(address) = addresses.get(index) {
                single.hostaddr(*address);
                name = address.to_string();
            }
            match hosts.get(index) {
                Some(Host::Tcp(host)) => {
                    single.host(host);
                    name.clone_from(host);
                }
                Some(Host::Unix(path)) => {
                    single.host_path(path);
                    name = path.display().to_string();
                }
                None => {}
            }
            (format!("{name}:{port}"), single)
        })
        .collect()
}

/// All of a connection but its hosts and ports.
fn without_hosts(connection: &Config) -> Config {
    let mut single = Config::new();
    if let Some(user) = connection.get_user() {
        single.user(user);
    }
    if let Some(password) = connection.get_password() {
        single.password(password);
    }
    if let Some(database) = connection.get_dbname() {
        single.dbname(database);
    }
    if let Some(options) = connection.get_options() {
        single.options(options);
    }
    if let Some(name) = connection.get_application_name() {
        single.application_name(name);
    }
    if let Some(timeout) = connection.get_connect_timeout() {
        single.connect_timeout(*timeout);
    }
    if let Some(timeout) = connection.get_tcp_user_timeout() {
        single.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = connection.get_keepalives_interval() {
        single.keepalives_interval(interval);
    }
    if let Some(retries) = connection.get_keepalives_retries() {
        single.keepalives_retries(retries);
    }
    single
        .ssl_mode(connection.get_ssl_mode())
        .ssl_negotiation(connection.get_ssl_negotiation())
        .keepalives(connection.get_keepalives())
        .keepalives_idle(connection.get_keepalives_idle())
        .target_session_attrs(connection.get_target_session_attrs())
        .channel_binding(connection.get_channel_binding());
    single
}

#[cfg(test)]
mod tests;
