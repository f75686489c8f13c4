//! Which kinds of tokens are taken for access tokens.
//!
//! An issuer signs ID tokens, logout tokens and others with the same keys, and the audience of an
//! ID token is a client's id, which may be Egret's audience by mistake. RFC 9068 marks access
//! tokens by the header's `typ`; most issuers write `JWT` or nothing there, so that claims have to
//! tell which only ID tokens have (OpenID Connect Core sections 2 and 3.3.2.11), or that issuers
//! mark kinds with (`typ` by Keycloak, `token_use` by Cognito).

use serde_json::Value;

use super::refusal::JwtRefusal;
use crate::error::ServerError;

/// Stands in the setting for tokens whose header has no `typ`.
const ABSENT_TYPE: &str = "none";

/// May be left out before a media type's name (RFC 7515 section 4.1.9).
const MEDIA_TYPE_PREFIX: &str = "application/";

/// Claims of ID tokens alone; `nonce` is also in access tokens of issuers that say what they are.
const ID_TOKEN_CLAIMS: [&str; 4] = ["at_hash", "c_hash", "s_hash", "nonce"];

/// The kinds of tokens that are accepted.
#[derive(Clone, Debug)]
pub(super) struct TokenTypes(Vec<String>);

impl TokenTypes {
    /// Reads the setting `oidc.token_types`.
    ///
    /// # Errors
    /// [`ServerError::Setting`]: it names none.
    pub(super) fn read(text: &str) -> Result<Self, ServerError> {
        let names: Vec<String> =
            text.split(',').map(normalize_type).filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return Err(ServerError::Setting {
                setting: "oidc.token_types",
                message: "it names no token type: write for example at+jwt".to_owned(),
            });
        }
        Ok(Self(names))
    }

    /// Checks the `typ` of a token's header.
    ///
    /// # Errors
    /// [`JwtRefusal::Type`].
    pub(super) fn check_header(&self, token_type: Option<&str>) -> Result<(), JwtRefusal> {
        let name = match token_type {
            // A token cannot say of itself that it says nothing.
            Some(name) if normalize_type(name) == ABSENT_TYPE => None,
            Some(name) => Some(normalize_type(name)),
            None => Some(ABSENT_TYPE.to_owned()),
        };
        if name.is_some_and(|name| self.0.contains(&name)) {
            return Ok(());
        }
        Err(JwtRefusal::Type("the `typ` of its header is not among oidc.token_types"))
    }
}

/// Refuses claims that say of their token that it is no access token.
///
/// # Errors
/// [`JwtRefusal::Type`].
pub(super) fn check_claims(claims: &Value) -> Result<(), JwtRefusal> {
    let declared_kind = claims["typ"].as_str().or(claims["token_use"].as_str());
    let is_access_token = match declared_kind {
        Some(kind) => {
            let other_kinds = ["id", "refresh", "offline", "logout"];
            !other_kinds.iter().any(|other| kind.eq_ignore_ascii_case(other))
        }
        None => ID_TOKEN_CLAIMS.iter().all(|name| claims.get(name).is_none()),
    };
    if is_access_token {
        return Ok(());
    }
    Err(JwtRefusal::Type("it is an ID token or a refresh token: send the access token"))
}

/// Names of media types are compared without regard to case, and without the prefix that may be
/// left out.
fn normalize_type(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    match name.strip_prefix(MEDIA_TYPE_PREFIX) {
        Some(rest) => rest.to_owned(),
        None => name,
    }
}

#[cfg(test)]
mod tests;
