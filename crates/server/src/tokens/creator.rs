//! What a token may give to the tokens that it makes: nothing that it does not have itself.

use egret_base::Timestamp;

use super::TokenError;
use super::model::{Token, TokenRequest};

impl TokenRequest {
    /// The request as `creator` may make it: of the creator's tenant unless the operator names
    /// another one, and ending with the creator at the latest.
    ///
    /// # Errors
    /// [`TokenError::ExceedsCreator`] when the new token could do what its creator cannot.
    pub(crate) fn restrict_to_creator(
        mut self,
        creator: &Token,
        now: Timestamp,
    ) -> Result<Self, TokenError> {
        let exceeds_error = |reason: String| TokenError::ExceedsCreator { reason };
        let tenant = self.tenant.get_or_insert_with(|| creator.tenant.clone());
        if !creator.belongs_to_operator() && *tenant != creator.tenant {
            let own_tenant = &creator.tenant;
            return Err(exceeds_error(format!(
                "it can create tokens of its tenant `{own_tenant}` only"
            )));
        }
        if let Some(scope) = self.scopes.iter().find(|scope| !creator.allows(scope)) {
            return Err(exceeds_error(format!("it lacks the scope `{scope}`")));
        }
        if let Some(end) = creator.expires_at {
            let remaining_ms = u64::try_from(end.since(now).as_millis()).unwrap_or(u64::MAX).max(1);
            if self.ttl_ms.is_some_and(|ttl_ms| ttl_ms > remaining_ms) {
                return Err(exceeds_error(format!("it expires at {end} itself")));
            }
            self.ttl_ms = Some(self.ttl_ms.unwrap_or(remaining_ms));
        }
        Ok(self)
    }
}
