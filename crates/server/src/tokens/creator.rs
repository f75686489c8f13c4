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
    pub fn made_by(mut self, creator: &Token, now: Timestamp) -> Result<Self, TokenError> {
        let exceeds = |reason: String| TokenError::ExceedsCreator { reason };
        let tenant = self.tenant.get_or_insert_with(|| creator.tenant.clone());
        if !creator.is_operators() && *tenant != creator.tenant {
            let own = &creator.tenant;
            return Err(exceeds(format!(
                "it can create tokens of its tenant `{own}` only"
            )));
        }
        if let Some(scope) = self.scopes.iter().find(|scope| !creator.allows(scope)) {
            return Err(exceeds(format!("it lacks the scope `{scope}`")));
        }
        if let Some(end) = creator.expires_at {
            let left_ms = u64::try_from(end.since(now).as_millis())
                .unwrap_or(u64::MAX)
                .max(1);
            if self.ttl_ms.is_some_and(|ttl_ms| ttl_ms > left_ms) {
                return Err(exceeds(format!("it expires at {end} itself")));
            }
            self.ttl_ms = Some(self.ttl_ms.unwrap_or(left_ms));
        }
        Ok(self)
    }
}
