//! Connections with several hosts: which of them failed, and how.

use tokio_postgres::config::{Host, LoadBalanceHosts};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Config, Connection, Socket};

use crate::error::{PostgresError, describe, is_unknown_database, server};
use crate::retry;

/// A session and what drives it.
type Session<T> = (
    tokio_postgres::Client,
    Connection<Socket, <T as MakeTlsConnect<Socket>>::Stream>,
);

/// Connects to the first host that takes the session, in the order of the connection string.
///
/// # Errors
/// [`PostgresError::Server`] of a single host; [`PostgresError::NoHost`] with the error of each.
pub(crate) async fn connect<T>(connection: &Config, tls: T) -> Result<Session<T>, PostgresError>
where
    T: MakeTlsConnect<Socket> + Clone,
{
    let hosts = split(connection);
    // The driver draws the order of hosts among which the load is balanced.
    let is_balanced = connection.get_load_balance_hosts() == LoadBalanceHosts::Random;
    if hosts.len() < 2 || is_balanced {
        return connection.connect(tls).await.map_err(server("connect"));
    }
    let mut reasons = Vec::new();
    let mut decisive: Option<tokio_postgres::Error> = None;
    for (name, host) in hosts {
        match host.connect(tls.clone()).await {
            Ok(session) => return Ok(session),
            Err(error) => {
                reasons.push(format!("{name}: {}", describe(&error)));
                if decisive
                    .as_ref()
                    .is_none_or(|earlier| weight(&error) > weight(earlier))
                {
                    decisive = Some(error);
                }
            }
        }
    }
    Err(PostgresError::NoHost {
        reasons: reasons.join("; "),
        source: decisive.expect("there are at least two hosts, and each failed"),
    })
}

/// How much an error of one host says about all of them. Where one may take the session later, all may; and a database is
/// gone only if none of them has it, as a standby may lag behind.
fn weight(error: &tokio_postgres::Error) -> u8 {
    if retry::is_transient(error) {
        2
    } else {
        u8::from(!is_unknown_database(error))
    }
}

/// A connection for each host with its name; none where the numbers of hosts, addresses and ports do not match, which
/// the driver reports.
fn split(connection: &Config) -> Vec<(String, Config)> {
    let (hosts, addresses) = (connection.get_hosts(), connection.get_hostaddrs());
    let ports = connection.get_ports();
    let count = hosts.len().max(addresses.len());
    let fits = |length: usize| length == 0 || length == count;
    if !fits(hosts.len()) || !fits(addresses.len()) || !(ports.len() == 1 || fits(ports.len())) {
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
