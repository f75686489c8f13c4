//! Sessions of Egret as superuser: nothing that a database or a role defines decides what they
//! mean.

use std::path::Path;

use crate::cluster::SUPERUSER;
use crate::session_settings::SETTINGS;

/// Settings that sessions of Egret as superuser start with besides [`SETTINGS`]. A parameter of the
/// connection wins over `ALTER DATABASE … SET` and `ALTER ROLE … SET` (`GucSource` in PostgreSQL's
/// guc.h), so that the owner of a database, which is no superuser, decides neither what an
/// unqualified name means, nor which role a session has, nor when it ends.
const SUPERUSER_SETTINGS: [(&str, &str); 4] = [
    ("role", "none"),
    ("session_replication_role", "origin"),
    // A library that is not there keeps a session from being opened, and any other one is code of
    // others.
    ("session_preload_libraries", ""),
    ("local_preload_libraries", ""),
];

/// Further settings, which PostgreSQL knows from version 17 on. An event trigger is code of the
/// source's that would run with Egret's rights: a login trigger in every session.
const SUPERUSER_SETTINGS_17: [(&str, &str); 2] =
    [("event_triggers", "off"), ("transaction_timeout", "0")];

/// All of these settings as the parameter `options` of a connection to a server of this version.
fn superuser_options(postgres_major: u32) -> String {
    let newer: &[(&str, &str)] = if postgres_major >= 17 { &SUPERUSER_SETTINGS_17 } else { &[] };
    let options: Vec<String> = SETTINGS
        .iter()
        .chain(&SUPERUSER_SETTINGS)
        .chain(newer)
        .map(|(name, value)| format!("-c {name}={}", value.trim_matches('\'').replace(' ', "\\ ")))
        .collect();
    options.join(" ")
}

/// Whether a connection was made by [`socket_connection`], so that its sessions start with these
/// settings.
pub(crate) fn has_superuser_options(connection: &tokio_postgres::Config) -> bool {
    let options = connection.get_options();
    options.is_some_and(|options| options.starts_with(&superuser_options(0)))
}

/// How to connect over a server's socket as the superuser.
pub fn socket_connection(
    socket_dir: &Path,
    port: u16,
    postgres_major: u32,
    database: &str,
    engine: &str,
) -> tokio_postgres::Config {
    let mut connection = tokio_postgres::Config::new();
    connection
        .options(superuser_options(postgres_major))
        .host_path(socket_dir)
        .port(port)
        .user(SUPERUSER)
        .dbname(database)
        .application_name(format!("egret/{engine}"))
        .ssl_mode(tokio_postgres::config::SslMode::Disable);
    connection
}
