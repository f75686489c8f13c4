//! The parameters of a connection string, whatever form it has, with what libpq adds to them: the
//! environment, a service file, a password file.
//!
//! The forms, the order of precedence and the names are those of "Connection Strings" and
//! "Parameter Key Words" in PostgreSQL's documentation of libpq.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::passfile;

/// Names and values; a name that is there twice has its last value.
pub(super) type Parameters = BTreeMap<String, String>;

/// Parameters that are ignored: GSSAPI and compression are not supported.
const WITHOUT_EFFECT: [&str; 6] = [
    "krbsrvname",
    "gsslib",
    "gssdelegation",
    "sslcompression",
    "fallback_application_name",
    "application_name",
];

/// Variables that stand for parameters which the string does not have.
const VARIABLES: [(&str, &str); 18] = [
    ("PGHOST", "host"),
    ("PGPORT", "port"),
    ("PGDATABASE", "dbname"),
    ("PGUSER", "user"),
    ("PGPASSWORD", "password"),
    ("PGPASSFILE", "passfile"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGLOADBALANCEHOSTS", "load_balance_hosts"),
    ("PGSSLMINPROTOCOLVERSION", "ssl_min_protocol_version"),
    ("PGSSLMAXPROTOCOLVERSION", "ssl_max_protocol_version"),
    ("PGMINPROTOCOLVERSION", "min_protocol_version"),
    ("PGMAXPROTOCOLVERSION", "max_protocol_version"),
];

/// Directories in which a server of this machine has its socket. `/tmp` is none of them: every user
/// can put one there.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/run/postgresql"];

const DEFAULT_PORT: &str = "5432";

/// Reads a connection string and completes it. `variable` looks up the environment.
///
/// # Errors
/// What is wrong, without any value.
pub(super) fn parse(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Parameters, String> {
    let mut parameters = match strip_scheme(text) {
        Some(rest) => from_url(rest)?,
        None => from_keywords(text)?,
    };
    let service = parameters.remove("service").or_else(|| variable("PGSERVICE"));
    if let Some(service) = service {
        for (name, value) in read_service(&service, variable)? {
            parameters.entry(name).or_insert(value);
        }
    }
    for (name, key) in VARIABLES {
        if let Some(value) = variable(name) {
            parameters.entry(key.to_owned()).or_insert(value);
        }
    }
    parameters.retain(|name, _| !WITHOUT_EFFECT.contains(&name.as_str()));
    add_defaults(&mut parameters)?;
    Ok(parameters)
}

fn strip_scheme(text: &str) -> Option<&str> {
    text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"))
}

/// Host and password where the string has none.
fn add_defaults(parameters: &mut Parameters) -> Result<(), String> {
    let is_set = |parameters: &Parameters, name: &str| {
        parameters.get(name).is_some_and(|value| !value.is_empty())
    };
    if !is_set(parameters, "host") && !is_set(parameters, "hostaddr") {
        let port = parameters.get("port").map_or(DEFAULT_PORT, String::as_str);
        let socket = format!(".s.PGSQL.{port}");
        let found = SOCKET_DIRECTORIES
            .into_iter()
            .find(|directory| Path::new(directory).join(&socket).exists());
        let host = found.unwrap_or("localhost").to_owned();
        parameters.insert("host".to_owned(), host);
    }
    let passfile = parameters.remove("passfile");
    if !is_set(parameters, "password")
        && let Some(password) = passfile::find_password(passfile.as_deref(), parameters)?
    {
        parameters.insert("password".to_owned(), password);
    }
    Ok(())
}

/// Parses a URL without its scheme: `[user[:password]@][host[:port],…][/database][?name=value&…]`.
fn from_url(rest: &str) -> Result<Parameters, String> {
    let mut parameters = Parameters::new();
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, query),
        None => (rest, ""),
    };
    let (authority, database) = match rest.split_once('/') {
        Some((authority, database)) => (authority, database),
        None => (rest, ""),
    };
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (user, hosts),
        None => ("", authority),
    };
    let (user, password) = match user.split_once(':') {
        Some((user, password)) => (user, password),
        None => (user, ""),
    };
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',').filter(|_| !hosts.is_empty()) {
        let (name, port) = host_and_port(host)?;
        names.push(percent_decode(name)?);
        ports.push(port.to_owned());
    }
    let mut put = |name: &str, value: String| {
        if !value.is_empty() {
            parameters.insert(name.to_owned(), value);
        }
    };
    put("host", names.join(","));
    if ports.iter().any(|port| !port.is_empty()) {
        put("port", ports.join(","));
    }
    put("user", percent_decode(user)?);
    put("password", percent_decode(password)?);
    put("dbname", percent_decode(database)?);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or("a parameter after `?` has no value")?;
        match (name, value) {
            // As JDBC has it.
            ("ssl", "true") => put("sslmode", "require".to_owned()),
            _ => put(&percent_decode(name)?, percent_decode(value)?),
        }
    }
    Ok(parameters)
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`.
fn host_and_port(text: &str) -> Result<(&str, &str), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (name, rest) = rest.split_once(']').ok_or("an address in brackets is not closed")?;
        return Ok((name, rest.strip_prefix(':').unwrap_or(rest)));
    }
    Ok(text.split_once(':').unwrap_or((text, "")))
}

fn percent_decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next(), rest.next()];
        let value = digits
            .into_iter()
            .try_fold(0, |value: u32, digit| Some(value * 16 + char::from(digit?).to_digit(16)?));
        let byte = value.and_then(|value| u8::try_from(value).ok());
        bytes.push(byte.ok_or("`%` is not followed by two hexadecimal digits")?);
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

/// `name = value name = 'a value'`; a backslash takes the next character as it is.
fn from_keywords(text: &str) -> Result<Parameters, String> {
    let mut parameters = Parameters::new();
    let mut rest = text.chars().peekable();
    loop {
        while rest.next_if(|character| character.is_whitespace()).is_some() {}
        if rest.peek().is_none() {
            return Ok(parameters);
        }
        let mut name = String::new();
        while let Some(found) = rest.next_if(|found| !found.is_whitespace() && *found != '=') {
            name.push(found);
        }
        while rest.next_if(|found| found.is_whitespace()).is_some() {}
        if rest.next() != Some('=') {
            return Err("a word is not of the form `name=value`".to_owned());
        }
        while rest.next_if(|found| found.is_whitespace()).is_some() {}
        let is_quoted = rest.next_if(|found| *found == '\'').is_some();
        let mut value = String::new();
        loop {
            match rest.next() {
                Some('\\') => value.extend(rest.next()),
                Some('\'') if is_quoted => break,
                Some(found) if found.is_whitespace() && !is_quoted => break,
                Some(found) => value.push(found),
                None if is_quoted => {
                    return Err(format!("the quoted value of {name} is not closed"));
                }
                None => break,
            }
        }
        if !value.is_empty() {
            parameters.insert(name, value);
        }
    }
}

/// The section of a service in the user's file, else in the system's.
fn read_service(
    service: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Parameters, String> {
    let user_file = variable("PGSERVICEFILE")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".pg_service.conf")));
    let system = variable("PGSYSCONFDIR")
        .map_or_else(|| PathBuf::from("/etc/postgresql-common"), PathBuf::from);
    for path in user_file.into_iter().chain([system.join("pg_service.conf")]) {
        if !path.exists() {
            continue;
        }
        // Its host is where passwords are sent.
        egret_linux::trust::check(&path).map_err(|error| format!("service file: {error}"))?;
        let text = egret_linux::regular_file::read_to_string(&path)
            .map_err(|error| format!("service file {}: {error}", path.display()))?;
        if let Some(service_parameters) = find_section(&text, service) {
            return Ok(service_parameters);
        }
    }
    Err(format!("service `{service}` is not defined in any service file"))
}

fn find_section(text: &str, service: &str) -> Option<Parameters> {
    let mut lines = text.lines().map(str::trim);
    let head = format!("[{service}]");
    lines.find(|line| *line == head)?;
    let pairs = lines
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once('='));
    Some(pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect())
}

/// Removes parameters that tokio-postgres does not know and Egret does not need, and refuses those
/// that would have to take effect but cannot.
///
/// # Errors
/// The parameter that cannot be used.
pub(super) fn adapt_for_driver(parameters: &mut Parameters) -> Result<(), String> {
    // GSSAPI encryption is optional in all modes but one.
    let ignored: [(&str, &[&str]); 6] = [
        ("gssencmode", &["disable", "prefer"]),
        ("client_encoding", &["utf8", "utf-8", "unicode", "auto"]),
        ("sslsni", &["1"]),
        // The driver speaks protocol 3.0.
        ("min_protocol_version", &["3.0"]),
        ("max_protocol_version", &["3.0", "3.2", "latest"]),
        ("sslcertmode", &["allow"]),
    ];
    for (name, accepted) in ignored {
        if let Some(value) = parameters.remove(name)
            && !accepted.contains(&value.to_ascii_lowercase().as_str())
        {
            let accepted = accepted.join(", ");
            return Err(format!(
                "{name} is `{value}`, which Egret does not support: use {accepted}"
            ));
        }
    }
    let restricted: [(&str, &[&str]); 2] = [
        ("channel_binding", &["disable", "prefer", "require"]),
        ("load_balance_hosts", &["disable", "random"]),
    ];
    for (name, accepted) in restricted {
        if let Some(value) = parameters.get(name)
            && !accepted.contains(&value.as_str())
        {
            let accepted = accepted.join(", ");
            return Err(format!("{name} `{value}` is not one of {accepted}"));
        }
    }
    // Zero is the system's default, which the driver has no value for.
    let count = parameters.remove("keepalives_count");
    if let Some(count) = count.filter(|count| count.parse() != Ok(0)) {
        parameters.insert("keepalives_retries".to_owned(), count);
    }
    match parameters.get("target_session_attrs").map(String::as_str) {
        Some("primary") => {
            parameters.insert("target_session_attrs".to_owned(), "read-write".to_owned());
        }
        Some("standby" | "prefer-standby" | "read-only") => {
            return Err("target_session_attrs must lead to the primary: use read-write".to_owned());
        }
        None | Some("any" | "read-write") => {}
        Some(other) => {
            return Err(format!(
                "target_session_attrs `{other}` is not one of any, read-write and primary"
            ));
        }
    }
    for name in ["sslcrl", "sslcrldir", "sslpassword", "requirepeer", "replication", "require_auth"]
    {
        if parameters.contains_key(name) {
            return Err(format!("{name} is not supported: remove it"));
        }
    }
    Ok(())
}

/// Takes `tcp_user_timeout`, which is in milliseconds for libpq and in seconds for tokio-postgres;
/// none where it is zero, and Egret chooses.
///
/// # Errors
/// When it is not a number.
pub(super) fn take_user_timeout(parameters: &mut Parameters) -> Result<Option<Duration>, String> {
    let Some(value) = parameters.remove("tcp_user_timeout") else {
        return Ok(None);
    };
    let milliseconds: u32 = value.parse().map_err(|_| {
        format!("tcp_user_timeout is `{value}`, which is not a number of milliseconds")
    })?;
    Ok((milliseconds > 0).then(|| Duration::from_millis(milliseconds.into())))
}

/// The parameters as tokio-postgres reads them.
pub(super) fn to_keywords(parameters: &Parameters) -> String {
    let mut text = String::new();
    for (name, value) in parameters {
        let value = value.replace('\\', "\\\\").replace('\'', "\\'");
        text.push_str(&format!("{name}='{value}' "));
    }
    text
}

#[cfg(test)]
mod tests;
