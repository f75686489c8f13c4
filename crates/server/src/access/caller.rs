//! The caller of a request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::tokens::{LiveToken, Reach, Scope, TokenError};

/// The caller of a request, identified by its token.
#[derive(Clone, Debug)]
pub struct Caller(pub(super) Arc<LiveToken>);

impl Caller {
    /// The token's public id.
    pub(crate) fn token_id(&self) -> &str {
        &self.0.id
    }

    /// The tenant to which the token belongs.
    pub fn tenant(&self) -> &str {
        &self.0.tenant
    }

    /// The scopes of the caller's token.
    pub fn scopes(&self) -> &[String] {
        &self.0.scopes
    }

    /// The claims of the caller's token: values by name.
    pub fn claims(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.0.claims
    }

    pub(crate) fn token(&self) -> &Arc<LiveToken> {
        &self.0
    }

    /// Whether the caller has a scope, `admin` included, in some part of its area at least.
    pub(crate) fn has_scope(&self, scope: &str) -> bool {
        self.0.allows(scope)
    }

    /// Whether the caller has a scope for all of its area.
    pub(super) fn has_whole_area(&self, needed: &str) -> bool {
        self.0.scopes.iter().any(|granted| {
            let is_part = granted.contains('/');
            !is_part && Scope::allows(granted, needed)
        })
    }

    /// The parts of `area` in which the caller may do one of `actions`.
    pub fn reach(&self, area: &str, actions: &[&str]) -> Reach {
        self.0.reach(area, actions)
    }

    /// Insists that the caller may do one of `actions` in a part of an area.
    ///
    /// # Errors
    /// [`TokenError::ScopeMissing`], a 403, whether there is such a part or not.
    pub(crate) fn require_part(
        &self,
        area: &str,
        part: &str,
        actions: &[&str],
    ) -> Result<(), TokenError> {
        if self.reach(area, actions).covers(part) {
            return Ok(());
        }
        let action = actions.first().copied().unwrap_or("*");
        Err(TokenError::ScopeMissing { scope: format!("{area}/{part}:{action}") })
    }

    /// Insists that the caller may do one of `actions` in all of an area.
    ///
    /// # Errors
    /// [`TokenError::ScopeMissing`], a 403.
    pub(crate) fn require_whole_area(
        &self,
        area: &str,
        actions: &[&str],
    ) -> Result<(), TokenError> {
        if self.reach(area, actions) == Reach::All {
            return Ok(());
        }
        let action = actions.first().copied().unwrap_or("*");
        Err(TokenError::ScopeMissing { scope: format!("{area}:{action}") })
    }

    /// Insists that the caller belongs to the tenant of the operator.
    ///
    /// # Errors
    /// [`TokenError::OperatorOnly`], a 403.
    pub(crate) fn require_operator(&self) -> Result<(), TokenError> {
        if self.0.belongs_to_operator() { Ok(()) } else { Err(TokenError::OperatorOnly) }
    }

    /// Insists on a scope beyond those the operation's documentation names.
    ///
    /// # Errors
    /// [`TokenError::ScopeMissing`], a 403.
    pub(crate) fn require(&self, scope: &str) -> Result<(), TokenError> {
        if self.has_scope(scope) {
            return Ok(());
        }
        Err(TokenError::ScopeMissing { scope: scope.to_owned() })
    }
}
