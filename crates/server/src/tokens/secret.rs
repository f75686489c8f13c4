//! The text of a token: `egret_<12-character id>_<43-character secret>`.
//!
//! The prefix lets secret scanners find a leaked token. The id is 60 random bits in Crockford's
//! base 32 in lower case; the secret is 256 random bits in base64url. A secret of 256 bits cannot
//! be guessed, so a plain SHA-256 protects it and a wrong guess costs the server next to nothing.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use egret_base::Entropy;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const PREFIX: &str = "egret_";
const ID_LENGTH: usize = 12;
const SECRET_LENGTH: usize = 43;
const ID_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// A text that is no token. Carries nothing of the text, which may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a token: it must read egret_<id>_<secret>")]
pub struct MalformedToken;

/// A token as its holder presents it.
#[derive(Clone, PartialEq, Eq)]
pub struct PresentedToken {
    id: String,
    secret: String,
}

impl PresentedToken {
    /// Reads a token's text.
    ///
    /// # Errors
    /// [`MalformedToken`].
    pub(crate) fn parse(text: &str) -> Result<Self, MalformedToken> {
        let rest = text.strip_prefix(PREFIX).ok_or(MalformedToken)?;
        if !rest.is_ascii() || rest.len() != ID_LENGTH + 1 + SECRET_LENGTH {
            return Err(MalformedToken);
        }
        let (id, secret) = rest.split_at(ID_LENGTH);
        let secret = secret.strip_prefix('_').ok_or(MalformedToken)?;
        let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !id.bytes().all(|byte| ID_ALPHABET.contains(&byte)) || !secret.bytes().all(is_base64url)
        {
            return Err(MalformedToken);
        }
        Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
    }

    pub(crate) fn generate(entropy: &dyn Entropy) -> Self {
        let mut id = [0_u8; ID_LENGTH];
        entropy.fill(&mut id);
        let mut secret = [0_u8; 32];
        entropy.fill(&mut secret);
        Self {
            id: id.iter().map(|byte| char::from(ID_ALPHABET[usize::from(byte & 31)])).collect(),
            secret: URL_SAFE_NO_PAD.encode(secret),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The whole token, secret included.
    pub(crate) fn text(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }

    /// The SHA-256 of the secret's text.
    pub(crate) fn sha256(&self) -> [u8; 32] {
        Sha256::digest(self.secret.as_bytes()).into()
    }

    /// Whether the secret has this SHA-256; takes the same time whatever the answer.
    pub(crate) fn matches(&self, sha256: &[u8; 32]) -> bool {
        self.sha256().ct_eq(sha256).into()
    }
}

impl fmt::Debug for PresentedToken {
    /// Shows the public part only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presented({PREFIX}{}_…)", self.id)
    }
}
