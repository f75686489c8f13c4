//! `egret branch connect`: becomes psql on the branch, or prints the connection string.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use egret_linux::trust::{self, TrustError};

use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, decode};
use crate::responses::Connection;

pub(crate) async fn run(arguments: cli::Connect, api: &Api, output: Output) -> Result<(), Failure> {
    let query: Vec<(&str, &str)> =
        arguments.database.iter().map(|database| ("database", database.as_str())).collect();
    let answer = api.get(&["branches", &arguments.name, "connection"], &query).await?;
    if output.is_json() {
        return output.print_json(&answer);
    }
    let connection: Connection = decode(&answer)?;
    if arguments.print {
        return output.print_text(&connection.url);
    }
    let Some(psql) = trust::find_program("psql") else {
        return Err(not_installed(&arguments.name));
    };
    let startup = untrusted_startup_files();
    for error in &startup {
        output.print_remark(&format!(
            "warning: psql starts without startup file and history: {error}"
        ));
    }
    let error = exec_psql(&psql, &connection, &arguments.psql, startup.is_empty());
    if error.kind() != ErrorKind::NotFound {
        return Err(Failure::failed("psql", format!("cannot start psql: {error}")));
    }
    Err(not_installed(&arguments.name))
}

fn not_installed(branch: &str) -> Failure {
    Failure::failed("psql", "psql is not installed in a trusted directory of PATH").with_hint(format!(
        "install it (Debian, Ubuntu: apt-get install postgresql-client; Fedora: dnf install postgresql; macOS: brew install libpq), or give another client what `egret branch connect {branch} --print` prints"
    ))
}

/// Files that psql or its line editor would run commands from although another user can write to
/// them, `\!` with the rights of the user of this command included: the home directory of an
/// environment that was taken over (`su`, `sudo -E`) is another user's. What a variable names
/// instead counts beside the home directory, of which the other files are read all the same.
fn untrusted_startup_files() -> Vec<TrustError> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let in_home = [".psqlrc", ".inputrc", ".editrc", ".psql_history"];
    let in_home = variable("HOME").map(|home| in_home.map(|name| home.join(name)));
    let named = ["PSQLRC", "INPUTRC", "EDITRC"];
    named
        .into_iter()
        .filter_map(variable)
        .chain(in_home.into_iter().flatten())
        .filter_map(|path| trust::check(&path).err())
        .filter(|error| !matches!(error, TrustError::Io { .. }))
        .collect()
}

/// Everything goes through the child's environment: arguments are there for every user to read.
/// Returns only when there is no psql to become.
fn exec_psql(
    psql: &Path,
    connection: &Connection,
    arguments: &[String],
    reads_startup_files: bool,
) -> std::io::Error {
    let mut command = Command::new(psql);
    if !reads_startup_files {
        // The line editor reads a file of the same home directory whatever psql is asked for.
        command
            .args(["--no-psqlrc", "--no-readline"])
            .env("PSQL_HISTORY", "/dev/null")
            .env("INPUTRC", "/dev/null");
    }
    command
        .args(arguments)
        .env("PGHOST", &connection.host)
        .env("PGPORT", connection.port.to_string())
        .env("PGDATABASE", &connection.database)
        .env("PGUSER", &connection.user)
        .env("PGPASSWORD", &connection.password);
    // These would lead elsewhere whatever the ones above say, or take rights with them.
    for name in [
        "PGHOSTADDR",
        "PGSERVICE",
        "PGSERVICEFILE",
        "PGSYSCONFDIR",
        "PGOPTIONS",
        "PGREQUIREPEER",
        "PGTARGETSESSIONATTRS",
    ] {
        command.env_remove(name);
    }
    command.exec()
}
