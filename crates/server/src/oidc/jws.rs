//! Signed tokens in the compact form of RFC 7515, taken apart within bounds.
//!
//! Only asymmetric algorithms have names here, so that neither `none` nor a MAC keyed with a public
//! key can be meant. Whatever in a header says where a key may be found (`jku`, `jwk`, `x5u`,
//! `x5c`) is not read.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use egret_base::Limit;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::refusal::JwtRefusal;

/// Most bytes of a token that are looked at.
pub(super) const TOKEN_BYTES_MAX: Limit = Limit::new("oidc_token_bytes_max", 16 << 10);

/// Most bytes of a key's id.
pub(super) const KEY_ID_BYTES_MAX: usize = 256;

/// A signature algorithm (RFC 7518 section 3.1, RFC 8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    const ALL: [(Algorithm, &str); 9] = [
        (Algorithm::Rs256, "RS256"),
        (Algorithm::Rs384, "RS384"),
        (Algorithm::Rs512, "RS512"),
        (Algorithm::Ps256, "PS256"),
        (Algorithm::Ps384, "PS384"),
        (Algorithm::Ps512, "PS512"),
        (Algorithm::Es256, "ES256"),
        (Algorithm::Es384, "ES384"),
        (Algorithm::EdDsa, "EdDSA"),
    ];

    /// The algorithm of a name; upper and lower case differ.
    pub(super) fn from_name(text: &str) -> Option<Self> {
        let known = Self::ALL.iter().find(|(_, name)| *name == text);
        known.map(|(algorithm, _)| *algorithm)
    }

    /// The names of all algorithms, for messages.
    pub(super) fn names() -> String {
        Self::ALL.map(|(_, name)| name).join(", ")
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    typ: Option<String>,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

/// A token whose signature is not verified yet.
pub(super) struct SignedToken<'a> {
    /// What is signed: header and payload as they were sent.
    pub(super) message: &'a [u8],
    pub(super) signature: Vec<u8>,
    pub(super) algorithm: Algorithm,
    /// `typ` of the header (RFC 7515 section 4.1.9).
    pub(super) token_type: Option<String>,
    pub(super) key_id: Option<String>,
    payload: &'a str,
}

/// Whether a text has the form of a token for this module: three parts with dots between them.
pub(crate) fn has_jwt_form(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl<'a> SignedToken<'a> {
    /// Takes a token apart; its payload is not decoded before the signature is verified.
    ///
    /// # Errors
    /// [`JwtRefusal::TooLong`], [`JwtRefusal::Malformed`], [`JwtRefusal::Algorithm`].
    pub(super) fn parse(text: &'a str) -> Result<Self, JwtRefusal> {
        TOKEN_BYTES_MAX.check(text.len() as u64).map_err(JwtRefusal::TooLong)?;
        let parts = text.rsplit_once('.').and_then(|(message, signature)| {
            let (header, payload) = message.split_once('.')?;
            Some((message, header, payload, signature))
        });
        let Some((message, header, payload, signature)) = parts else {
            return Err(JwtRefusal::Malformed("it does not have three parts"));
        };
        let header: Header = serde_json::from_slice(&decode(header)?)
            .map_err(|_| JwtRefusal::Malformed("its header is not a JSON object with `alg`"))?;
        // RFC 7515 section 4.1.11: what is critical and not understood makes a token invalid.
        if header.crit.is_some() {
            return Err(JwtRefusal::Malformed("its header has `crit`"));
        }
        let is_long = |id: &String| id.len() > KEY_ID_BYTES_MAX;
        if header.kid.as_ref().is_some_and(is_long) {
            return Err(JwtRefusal::Malformed("its `kid` is too long"));
        }
        Ok(Self {
            message: message.as_bytes(),
            signature: decode(signature)?,
            algorithm: Algorithm::from_name(&header.alg).ok_or(JwtRefusal::Algorithm)?,
            token_type: header.typ,
            key_id: header.kid,
            payload,
        })
    }

    /// The claims; to be called once the signature has been verified.
    ///
    /// # Errors
    /// [`JwtRefusal::Malformed`].
    pub(super) fn claims(&self) -> Result<serde_json::Value, JwtRefusal> {
        let claims = serde_json::from_slice(&decode(self.payload)?);
        match claims {
            Ok(claims @ serde_json::Value::Object(_)) => Ok(claims),
            _ => Err(JwtRefusal::Malformed("its payload is not a JSON object")),
        }
    }
}

fn decode(part: &str) -> Result<Vec<u8>, JwtRefusal> {
    let decoded = URL_SAFE_NO_PAD.decode(part);
    decoded.map_err(|_| JwtRefusal::Malformed("a part of it is not base64url"))
}

#[cfg(test)]
mod tests;
