//! A branch's user, superuser of the branch included, through a running Egret and its proxy.

mod maintenance;
mod reach;
mod schema_egret;

use std::process::{Command, Stdio};

use crate::place::{Place, text};

/// What one session through the proxy answers; an error is `SQLSTATE: message` and its details.
fn ask(url: &str, sql: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args(["-X", "-A", "-t", "-q", "-v", "VERBOSITY=verbose"])
        .args(["-c", sql, url])
        .env_remove("PGPASSWORD")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(text(&output.stdout).trim().to_owned());
    }
    let error = text(&output.stderr);
    let problem = error
        .split_once(":  ")
        .map_or(&*error, |(_, problem)| problem);
    Err(problem.trim().to_owned())
}

/// Asserts that a statement is refused with this SQLSTATE and these words.
fn assert_refused(url: &str, sql: &str, sqlstate: &str, words: &str) {
    let error = ask(url, sql).expect_err(sql);
    let is_expected = error.starts_with(&format!("{sqlstate}: ")) && error.contains(words);
    assert!(is_expected, "{sql}: {error}");
}

/// Makes a branch whose user is a superuser of it; returns its connection string.
fn hostile(place: &Place, branch: &str) -> String {
    place.json(&["branch", "create", branch, "--superuser"]);
    place.connection_string(branch, "postgres")
}
