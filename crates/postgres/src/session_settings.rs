//! Settings that Egret gives its sessions on servers of others, where a database's owner may have
//! set others.
//!
//! They are set by statements, not by the startup parameter `options`, which poolers such as
//! PgBouncer refuse or ignore. Until they hold, no statement has a name that a schema of the
//! owner's could resolve: `SET` resolves none, and functions are named with schema `pg_catalog`.

use tokio_postgres::{Client, Config, SimpleQueryMessage};

use crate::error::{PostgresError, server_error};
use crate::superuser;

/// What every session of Egret has, as SQL text. An engine may set others afterwards.
pub(crate) const SETTINGS: [(&str, &str); 11] = [
    // Names that the catalogue spells are compared with those that Egret knows. Before the others:
    // PostgreSQL quotes the names of a list when it is set.
    ("quote_all_identifiers", "off"),
    ("statement_timeout", "0"),
    ("search_path", "pg_catalog,pg_temp"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
    ("default_transaction_isolation", "'read committed'"),
    ("row_security", "on"),
    // What Egret quotes it quotes by the standard.
    ("standard_conforming_strings", "on"),
];

/// Sets what PostgreSQL knows from version 17 on, where it does, and tells which role the session
/// has taken.
const NEWER_SETTINGS_AND_ROLE: &str = "SELECT pg_catalog.set_config('transaction_timeout', '0', false) \
     WHERE pg_catalog.current_setting('transaction_timeout', true) IS NOT NULL; \
     SELECT pg_catalog.current_setting('role')";

/// Whether a setting of the session's own role, which the database's owner cannot change, names a
/// role to take.
const HAS_ROLE_OF_ITS_OWN: &str = "SELECT EXISTS (\
         SELECT FROM pg_catalog.pg_db_role_setting AS setting \
         CROSS JOIN LATERAL pg_catalog.unnest(setting.setconfig) AS entry (text) \
         WHERE setting.setrole = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user) \
           AND setting.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())) \
           AND entry.text LIKE 'role=%')";

/// Gives a session the settings of Egret's sessions, unless it was started with them.
///
/// # Errors
/// [`PostgresError::Server`].
pub(crate) async fn apply(connection: &Config, client: &Client) -> Result<(), PostgresError> {
    if superuser::has_superuser_options(connection) {
        return Ok(());
    }
    let doing = "set up a session";
    let statements = SETTINGS.map(|(name, value)| format!("SET {name} = {value}")).join("; ");
    // In one round trip, but in transactions of their own: the second one begins with the defaults
    // that the first has set.
    let (set, messages) = tokio::join!(
        client.batch_execute(&statements),
        client.simple_query(NEWER_SETTINGS_AND_ROLE)
    );
    set.map_err(server_error(doing))?;
    let told = messages.map_err(server_error(doing))?;
    let mut values = told.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let role = values.next_back().unwrap_or("none");
    if role == "none" || names_role(connection.get_options().unwrap_or_default()) {
        return Ok(());
    }
    let row = client.query_one(HAS_ROLE_OF_ITS_OWN, &[]).await;
    if row.map_err(server_error(doing))?.get(0) {
        return Ok(());
    }
    let reset = client.batch_execute("SET ROLE NONE").await;
    reset.map_err(server_error(doing))
}

/// Whether the parameter `options` of a connection names a role to take.
fn names_role(options: &str) -> bool {
    let words = options.split_whitespace();
    let settings = words.map(|word| word.trim_start_matches("--").trim_start_matches("-c"));
    settings.into_iter().any(|setting| setting.starts_with("role="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_in_the_options_of_a_connection_is_found() {
        for options in ["-c role=app", "-crole=app", "-c geqo=off --role=app"] {
            assert!(names_role(options), "{options}");
        }
        for options in ["", "-c session_replication_role=origin", "-c geqo=off"] {
            assert!(!names_role(options), "{options}");
        }
    }
}
