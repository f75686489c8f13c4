//! The tenant that has series.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::access::Caller;
use crate::error::RequestError;
use crate::problem::Problem;
use crate::tokens::DEFAULT_TENANT;

/// Insists that the caller is of the default tenant, which has the only set of series.
pub(super) struct DefaultTenantAccess;

impl<S: Sync> FromRequestParts<S> for DefaultTenantAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        match caller.tenant() {
            DEFAULT_TENANT => Ok(Self),
            tenant => Err(RequestError::TenantWithoutSeries { tenant: tenant.to_owned() }.into()),
        }
    }
}
