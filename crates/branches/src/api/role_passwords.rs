//! Passwords of the application's roles, for branches that were asked for with them.
//!
//! Verifiers are read from the source when the branch is made, and kept in the registry: the files
//! of a branch hold none, so that its user cannot read them, superuser or not.

use std::sync::Arc;

use egret_postgres::wire::scram::Verifier;

use crate::engine::{Branches, Inner};
use crate::error::BranchesError;
use crate::model::{BranchId, BranchName, RolePassword};
use crate::store::prepare::ROLE;
use crate::store::source;

/// Roles of the application may enter branches from this version on.
const POSTGRES_MAJOR_MIN: u32 = 16;

impl Branches {
    /// A branch, and what checks the password that a client gives for `role`; wakes nothing.
    ///
    /// # Errors
    /// [`BranchesError::NotFound`] without the branch, and where the role's password is not valid
    /// any more: no password fits then.
    pub async fn verifier_of_role(
        &self,
        tenant: &str,
        name: &BranchName,
        role: &str,
    ) -> Result<(BranchId, Arc<Verifier>), BranchesError> {
        let branch = self.inner.find_branch(tenant, name)?;
        let role_password = if branch.role_passwords && role != ROLE {
            self.inner.state()?.registry.role_password(branch.id, role)
        } else {
            None
        };
        match role_password {
            Some(password) if password.valid_until.is_some_and(|at| at <= self.inner.now()) => {
                Err(BranchesError::NotFound { name: name.to_string() })
            }
            Some(password) => Ok((branch.id, password.verifier)),
            None => Ok((branch.id, self.inner.verifier_of(branch.id).await?)),
        }
    }
}

impl Inner {
    /// Reads the passwords that roles have in the source now.
    pub(crate) async fn read_role_passwords(&self) -> Result<Vec<RolePassword>, BranchesError> {
        if self.state()?.binaries.major < POSTGRES_MAJOR_MIN {
            return Err(BranchesError::Invalid {
                what: "role_passwords",
                reason: format!(
                    "roles of the application enter branches from PostgreSQL {POSTGRES_MAJOR_MIN} on"
                ),
            });
        }
        let connection = self.source.connection("postgres", "branches");
        let client = self.source.open_session(&connection).await?;
        source::role_passwords(&client).await
    }
}
