//! The parts of messages that list or count something.

use egret_postgres::tokio_postgres::error::SqlState;

use crate::model::{Etag, Referrers, UnresolvedReference, Violation};

pub fn describe_unresolved(references: &[UnresolvedReference]) -> String {
    let describe = |told: &UnresolvedReference| {
        let values: Vec<String> =
            told.identity.iter().map(|(path, value)| format!("{path} {value}")).collect();
        format!("`{}` has no document with {}", told.target_collection, values.join(", "))
    };
    match references {
        [] => "a reference has no target".to_owned(),
        [only] => describe(only),
        [first, more @ ..] => format!("{} (and {} more)", describe(first), more.len()),
    }
}

pub fn describe_referrers(referrers: &Referrers) -> String {
    match (referrers.has_more, referrers.count) {
        (true, count) => format!("more than {count} documents refer"),
        (false, 1) => "a document refers".to_owned(),
        (false, count) => format!("{count} documents refer"),
    }
}

pub fn describe_mismatch(at: &Option<Etag>) -> String {
    match at {
        Some(at) => format!("the document is at version {at}: read it again"),
        None => "there is no such document".to_owned(),
    }
}

/// The first violation, and how many more there are.
pub fn summarize_violations(violations: &[Violation]) -> String {
    match violations {
        [] => "it has a violation".to_owned(),
        [only] => only.to_string(),
        [first, more @ ..] => format!("{first} (and {} more)", more.len()),
    }
}

/// A message of the server has a code; one without is Egret's own, or of the connection.
pub fn describe_server_error(code: &Option<SqlState>, message: &str) -> String {
    match code {
        Some(_) => format!("PostgreSQL reports: {message}"),
        None => message.to_owned(),
    }
}
