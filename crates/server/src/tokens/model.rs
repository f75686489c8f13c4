//! A token as shown, the request for one, and a new one with its secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use egret_base::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::TokenError;
use super::scope::Scope;

/// The tenant of tokens whose request names none.
pub const DEFAULT_TENANT: &str = "default";

pub(crate) const NAME_LENGTH_MAX: usize = 100;
pub(crate) const TENANT_LENGTH_MAX: usize = 63;
/// Most scopes of a token.
pub(crate) const SCOPES_MAX: usize = 64;
pub(crate) const CLAIMS_MAX: usize = 32;
pub(crate) const CLAIM_VALUES_MAX: usize = 1_000;
pub(crate) const CLAIM_LENGTH_MAX: usize = 256;

/// Ten years: a token meant to live longer is one without an end.
pub(crate) const TTL_MS_MAX: u64 = 10 * 366 * 86_400_000;

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// The public part of the token, 12 characters.
    #[schema(example = "k3m9x2p7q4w8")]
    pub id: String,
    /// The name given by its creator.
    #[schema(example = "ci")]
    pub name: String,
    /// The tenant of the token.
    #[schema(example = "default")]
    pub tenant: String,
    /// The permissions of the token: `admin`, or `<area>:<action>`, or `<area>/<name>:<action>`.
    #[schema(example = json!(["branches:read", "branches:write"]))]
    pub scopes: Vec<String>,
    /// Claims of the token: values by name. They decide which documents the token may read in
    /// collections that declare `claims`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({"school": ["255901"]}))]
    pub claims: BTreeMap<String, BTreeSet<String>>,
    /// When it was created, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it expires, RFC 3339; null if it does not.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute, RFC 3339; null if never.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Timestamp>,
}

/// A new token: the only time its secret is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// The token without its secret.
    #[serde(flatten)]
    pub details: Token,
    /// The text to send as `Authorization: Bearer …`. It cannot be shown again.
    #[schema(example = "egret_k3m9x2p7q4w8_…")]
    pub token: String,
}

impl fmt::Debug for NewToken {
    /// Shows everything but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("details", &self.details).field("token", &"…").finish()
    }
}

/// A request for a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// A descriptive name, 1 to 100 characters.
    #[schema(min_length = 1, max_length = 100, example = "ci")]
    pub name: String,
    /// At least one of `admin`, `<area>:read`, `<area>:write`, `<area>:*`; of the queue also
    /// `:produce`, `:work`, `:operate`. `<area>/<name>:<action>` is for one queue, view, branch or
    /// collection only.
    #[schema(min_items = 1, max_items = 64, example = json!(["branches:*"]))]
    pub scopes: Vec<String>,
    /// Claims of the token: up to 32 names, with up to 1,000 values each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, BTreeSet<String>>,
    /// The tenant, 1 to 63 of `a-z`, `0-9`, `_` and `-`; the caller's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Milliseconds until the token expires; when absent, it does not expire, or expires with the
    /// token that creates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, example = 86_400_000)]
    pub ttl_ms: Option<u64>,
}

impl TokenRequest {
    /// Validates the request and returns the token that it describes.
    pub(super) fn validate(
        &self,
        id: &str,
        now: Timestamp,
        areas: &[&'static str],
    ) -> Result<Token, TokenError> {
        let length = self.name.chars().count();
        if length == 0 || length > NAME_LENGTH_MAX || self.name.chars().any(char::is_control) {
            return Err(TokenError::Field {
                field: "name",
                message: format!("must be 1 to {NAME_LENGTH_MAX} printable characters"),
            });
        }
        if self.scopes.is_empty() || self.scopes.len() > SCOPES_MAX {
            return Err(TokenError::Field {
                field: "scopes",
                message: format!(
                    "must be 1 to {SCOPES_MAX} scopes, for example [\"branches:read\"]"
                ),
            });
        }
        let mut scopes = Vec::with_capacity(self.scopes.len());
        for text in &self.scopes {
            let scope = Scope::parse(text, areas)?.to_string();
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        Ok(Token {
            id: id.to_owned(),
            name: self.name.clone(),
            tenant: self.valid_tenant()?.to_owned(),
            scopes,
            claims: check_claims(&self.claims).map(|()| self.claims.clone())?,
            created_at: now,
            expires_at: self.valid_ttl()?.map(|ttl| now.plus(ttl)),
            last_used_at: None,
        })
    }

    fn valid_tenant(&self) -> Result<&str, TokenError> {
        let tenant = self.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
        check_tenant(tenant).map(|()| tenant)
    }

    fn valid_ttl(&self) -> Result<Option<Duration>, TokenError> {
        match self.ttl_ms {
            Some(ttl_ms) if ttl_ms == 0 || ttl_ms > TTL_MS_MAX => Err(TokenError::Field {
                field: "ttl_ms",
                message: format!(
                    "{ttl_ms} is out of range: 1 to {TTL_MS_MAX} ms, or omit it for a token that does not expire"
                ),
            }),
            ttl_ms => Ok(ttl_ms.map(Duration::from_millis)),
        }
    }
}

/// Checks the name of a tenant.
///
/// # Errors
/// [`TokenError::Field`].
pub(crate) fn check_tenant(tenant: &str) -> Result<(), TokenError> {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    if tenant.is_empty() || tenant.len() > TENANT_LENGTH_MAX || !tenant.bytes().all(is_allowed) {
        return Err(TokenError::Field {
            field: "tenant",
            message: format!("must be 1 to {TENANT_LENGTH_MAX} of a-z, 0-9, _ and -"),
        });
    }
    Ok(())
}

/// Checks number and length of a token's claims.
///
/// # Errors
/// [`TokenError::Field`].
pub(crate) fn check_claims(claims: &BTreeMap<String, BTreeSet<String>>) -> Result<(), TokenError> {
    let is_text = |text: &String| {
        (1..=CLAIM_LENGTH_MAX).contains(&text.chars().count())
            && !text.chars().any(char::is_control)
    };
    let is_valid_claim = |(name, values): (&String, &BTreeSet<String>)| {
        is_text(name) && values.len() <= CLAIM_VALUES_MAX && values.iter().all(is_text)
    };
    if claims.len() <= CLAIMS_MAX && claims.iter().all(is_valid_claim) {
        return Ok(());
    }
    Err(TokenError::Field {
        field: "claims",
        message: format!(
            "must be up to {CLAIMS_MAX} names with up to {CLAIM_VALUES_MAX} values each, all of 1 to {CLAIM_LENGTH_MAX} printable characters"
        ),
    })
}

/// A text as the name of a token: cut to the length that names have, without control characters.
pub(crate) fn printable_name(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { '?' } else { c });
    printable.take(NAME_LENGTH_MAX).collect()
}
