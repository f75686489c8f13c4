//! `egret branch connect`: becomes psql on the branch, or prints the connection string.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::answers::Connection;
use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, decode};

pub(crate) async fn run(arguments: cli::Connect, api: &Api, output: Output) -> Result<(), Failure> {
    let query: Vec<(&str, &str)> = arguments
        .database
        .iter()
        .map(|database| ("database", database.as_str()))
        .collect();
    let answer = api
        .get(&["branches", &arguments.name, "connection"], &query)
        .await?;
    if output.is_json() {
        return output.json(&answer);
    }
    let connection: Connection = decode(&answer)?;
    if arguments.print {
        return output.text(&connection.url);
    }
    let error = become_psql(&connection, &arguments.psql);
    if error.kind() != ErrorKind::NotFound {
        return Err(Failure::failed(
            "psql",
            format!("psql could not be started: {error}"),
        ));
    }
    Err(Failure::failed("psql", "psql is not installed").with_hint(format!(
        "install it (Debian, Ubuntu: apt-get install postgresql-client; Fedora: dnf install postgresql; macOS: brew install libpq), or give another client what `egret branch connect {} --print` prints",
        arguments.name
    )))
}

/// Everything goes through the child's environment: arguments are there for every user to read.
/// Returns only when there is no psql to become.
fn become_psql(connection: &Connection, arguments: &[String]) -> std::io::Error {
    Command::new("psql")
        .args(arguments)
        .env("PGHOST", &connection.host)
        .env("PGPORT", connection.port.to_string())
        .env("PGDATABASE", &connection.database)
        .env("PGUSER", &connection.user)
        .env("PGPASSWORD", &connection.password)
        // These would lead elsewhere whatever the ones above say.
        .env_remove("PGHOSTADDR")
        .env_remove("PGSERVICE")
        .exec()
}
