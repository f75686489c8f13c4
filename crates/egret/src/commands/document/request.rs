//! Query parameters of the commands, and files that cannot be used.

use std::io;
use std::path::Path;

use crate::cli::DatabaseArgs;
use crate::failure::Failure;

/// Query parameters that name the database.
pub(in crate::commands::document) fn database_parameters(
    place: &DatabaseArgs,
) -> Vec<(String, String)> {
    let database = place.database.iter();
    database.map(|database| ("database".to_owned(), database.clone())).collect()
}

/// The parameters as a request takes them.
pub(in crate::commands::document) fn as_str_pairs(query: &[(String, String)]) -> Vec<(&str, &str)> {
    let each = query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    each.collect()
}

/// A file that cannot be read or written.
pub(in crate::commands::document) fn file_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}
