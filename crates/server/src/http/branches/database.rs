//! Which database of a branch is meant when the caller names none.

use egret_branches::model::BranchName;
use egret_branches::{Branches, BranchesError};

/// The database every cluster has for administration; nobody's data, as a rule.
const MAINTENANCE: &str = "postgres";

/// The database that was named, else the only one the branch has. Without a name the branch is
/// asked, and woken for it.
pub(super) async fn choose(
    branches: &Branches,
    tenant: &str,
    name: &BranchName,
    named: Option<String>,
) -> Result<String, BranchesError> {
    match named {
        Some(named) if named.contains('\0') => Err(BranchesError::Invalid {
            what: "database",
            reason: "a name holds no NUL".to_owned(),
        }),
        Some(named) => Ok(named),
        None => only_one(branches.databases(tenant, name).await?),
    }
}

/// The user's only database; the maintenance database when there is no other.
fn only_one(databases: Vec<String>) -> Result<String, BranchesError> {
    let users: Vec<&String> = databases
        .iter()
        .filter(|name| *name != MAINTENANCE)
        .collect();
    match users.as_slice() {
        [] => Ok(MAINTENANCE.to_owned()),
        [only] => Ok((*only).clone()),
        several => Err(BranchesError::Invalid {
            what: "database",
            reason: format!(
                "the branch has {}: name one of them",
                several
                    .iter()
                    .map(|name| format!("`{name}`"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        }),
    }
}

#[cfg(test)]
mod tests;
