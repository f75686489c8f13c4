//! A branch's user, superuser of the branch included, through a running Egret and its proxy.

mod maintenance;
mod reach;
mod schema_egret;

use crate::place::{Place, psql};

/// What one session through the proxy answers; an error is `SQLSTATE: message` and its details.
fn ask(url: &str, sql: &str) -> Result<String, String> {
    psql(&["-q", "-v", "VERBOSITY=verbose"], url, sql).map_err(|error| {
        let problem = error.split_once(":  ").map_or(&*error, |(_, problem)| problem);
        problem.trim().to_owned()
    })
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
