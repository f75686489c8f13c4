//! Limits of definitions that are settings.
//!
//! They hold for what is declared, not for what is stored: a lower setting must not make a database
//! unreadable.

use crate::config::DocumentsConfig;
use crate::error::DocumentsError;
use crate::model::Violation;

use super::{LocatedDefinition, invalid};

/// Checks that definitions are within the limits of the settings.
///
/// # Errors
/// [`DocumentsError::DefinitionInvalid`] with each limit that is exceeded.
pub(crate) fn check_limits(
    definitions: &[LocatedDefinition],
    config: &DocumentsConfig,
) -> Result<(), DocumentsError> {
    let mut violations = Vec::new();
    for LocatedDefinition { pointer, definition } in definitions {
        let identity = ("identity", definition.identity.len(), config.identity_paths_max);
        let query = ("query", definition.query.len(), config.query_paths_max);
        for (key, count, max) in [identity, query] {
            if count > max as usize {
                let message = format!(
                    "there are {count}, more than the maximum of {max} (`documents.{key}_paths_max`)"
                );
                violations.push(Violation::new(format!("{pointer}/{key}"), message));
            }
        }
    }
    if violations.is_empty() { Ok(()) } else { Err(invalid(violations)) }
}

#[cfg(test)]
mod tests;
