//! Why a JSON Web Token is not accepted.

use egret_base::{CodedError, Kind, LimitExceeded, Timestamp};

/// Why a JSON Web Token is not accepted. No text of the token is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtRefusal {
    /// The token has more bytes than are looked at.
    #[error("the token is not valid: {0}")]
    TooLong(LimitExceeded),
    /// The token is no signed JSON Web Token of the compact form.
    #[error("the token is not valid: {0}")]
    Malformed(&'static str),
    /// The algorithm is not among those of the settings, or not that of the key.
    #[error("the token is not valid: oidc.algorithms or the key does not allow its algorithm")]
    Algorithm,
    /// The token is one of another kind, such as an ID token.
    #[error("the token is not valid: {0}")]
    Type(&'static str),
    /// The issuer has no such key.
    #[error("the token is not valid: the issuer has no key with its `kid`")]
    KeyUnknown,
    /// The signature is not the key's.
    #[error("the token is not valid: its signature does not match")]
    Signature,
    /// The token is of another issuer.
    #[error("the token is not valid: `iss` is not oidc.issuer")]
    Issuer,
    /// The token is for another audience.
    #[error("the token is not valid: `aud` does not hold oidc.audience")]
    Audience,
    /// The token's time is over.
    #[error("the token expired at {at}: ask the issuer for a new one")]
    Expired {
        /// The claim `exp` with the leeway.
        at: Timestamp,
    },
    /// The token's time has not begun.
    #[error("the token is not valid yet: `nbf` or `iat` is in the future")]
    NotYetValid,
    /// The token is valid for too long.
    #[error("the token is not valid: it ends later than oidc.token_lifetime_max from now")]
    Lifetime,
    /// A claim is missing or cannot be used.
    #[error("the token is not valid: {0}")]
    Claim(String),
    /// The keys cannot be had, so that nothing can be said of the token.
    #[error("the keys of the token's issuer are not available at the moment: try again")]
    KeysUnavailable,
    /// Too many tokens hold requests open.
    #[error("too many tokens of the issuer are in use: {0}")]
    TooMany(LimitExceeded),
    /// Too many tokens wait to be verified.
    #[error("too many tokens of the issuer are being verified: {0}")]
    Busy(LimitExceeded),
    /// The client's address has sent too many tokens that came to nothing.
    #[error("too many tokens from this address were refused: {0}")]
    TooManyFailures(LimitExceeded),
}

impl JwtRefusal {
    /// The name in metrics.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            JwtRefusal::TooLong(_) => "too_long",
            JwtRefusal::Malformed(_) => "malformed",
            JwtRefusal::Algorithm => "algorithm",
            JwtRefusal::KeyUnknown => "key_unknown",
            JwtRefusal::Signature => "signature",
            JwtRefusal::Issuer => "issuer",
            JwtRefusal::Audience => "audience",
            JwtRefusal::Expired { .. } => "expired",
            JwtRefusal::NotYetValid => "not_yet_valid",
            JwtRefusal::Lifetime => "lifetime",
            JwtRefusal::Claim(_) => "claim",
            JwtRefusal::KeysUnavailable => "keys_unavailable",
            JwtRefusal::TooMany(_) => "too_many",
            JwtRefusal::Busy(_) => "busy",
            JwtRefusal::TooManyFailures(_) => "too_many_failures",
            JwtRefusal::Type(_) => "type",
        }
    }
}

impl CodedError for JwtRefusal {
    fn code(&self) -> &'static str {
        match self {
            JwtRefusal::Expired { .. } => "token_expired",
            JwtRefusal::KeysUnavailable => "oidc_keys_unavailable",
            JwtRefusal::TooMany(exceeded)
            | JwtRefusal::Busy(exceeded)
            | JwtRefusal::TooManyFailures(exceeded) => exceeded.name,
            _ => "token_invalid",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            JwtRefusal::KeysUnavailable | JwtRefusal::TooMany(_) | JwtRefusal::Busy(_) => {
                Kind::Unavailable
            }
            JwtRefusal::TooManyFailures(_) => Kind::LimitReached,
            _ => Kind::Unauthenticated,
        }
    }
}
