//! Which database of a branch is meant when the caller names none.

use egret_branches::model::BranchName;
use egret_branches::{Branches, BranchesError};

/// The database that every cluster has for administration; as a rule it holds no data of users.
const MAINTENANCE: &str = "postgres";

/// Most names of databases in the error for a database that does not exist.
const LISTED_MAX: usize = 20;

/// Returns the named database, else the only one that the branch has. Without a name the branch is
/// queried, and woken for it.
pub(super) async fn choose_database(
    branches: &Branches,
    tenant: &str,
    name: &BranchName,
    requested: Option<String>,
) -> Result<String, BranchesError> {
    match requested {
        Some(named) => check_name(named),
        None => only_database(branches.databases(tenant, name).await?),
    }
}

/// Returns the named database if it exists, else the only one that the branch has. The branch is
/// queried in any case, and woken for it.
pub(super) async fn choose_existing_database(
    branches: &Branches,
    tenant: &str,
    name: &BranchName,
    requested: Option<String>,
) -> Result<String, BranchesError> {
    let named = requested.map(check_name).transpose()?;
    let databases = branches.databases(tenant, name).await?;
    match named {
        Some(database) if !databases.contains(&database) => Err(BranchesError::DatabaseNotFound {
            name: name.to_string(),
            database,
            existing: quote_names(databases.iter().take(LISTED_MAX)),
        }),
        Some(database) => Ok(database),
        None => only_database(databases),
    }
}

fn check_name(named: String) -> Result<String, BranchesError> {
    if named.contains('\0') {
        return Err(BranchesError::Invalid {
            what: "database",
            reason: "a name cannot contain a NUL character".to_owned(),
        });
    }
    Ok(named)
}

fn quote_names<'a>(databases: impl Iterator<Item = &'a String>) -> String {
    let quoted: Vec<String> = databases.map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// The user's only database; the maintenance database when there is no other.
fn only_database(databases: Vec<String>) -> Result<String, BranchesError> {
    let users: Vec<&String> = databases.iter().filter(|name| *name != MAINTENANCE).collect();
    match users.as_slice() {
        [] => Ok(MAINTENANCE.to_owned()),
        [only] => Ok((*only).clone()),
        several => Err(BranchesError::Invalid {
            what: "database",
            reason: format!("the branch has {}: name one", quote_names(several.iter().copied())),
        }),
    }
}

#[cfg(test)]
mod tests;
