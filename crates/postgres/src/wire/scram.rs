//! The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), as a pure state machine.
//!
//! Channel binding (`SCRAM-SHA-256-PLUS`) is not offered. As in PostgreSQL, the user name inside of
//! the exchange is ignored, since the startup packet has named the role already.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The name under which the mechanism is offered.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// The fewest iterations RFC 7677 allows. Enough for generated passwords, which cannot be guessed.
pub(crate) const ITERATIONS_MIN: u32 = 4096;

/// What the server keeps of a password: enough to check it, not enough to log in elsewhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// Random bytes that make equal passwords look different.
    pub salt: Vec<u8>,
    /// How often the password is hashed.
    pub iterations: u32,
    /// The hash of the client's key.
    pub stored_key: [u8; 32],
    /// The key by which the server proves that it knows the verifier.
    pub server_key: [u8; 32],
}

/// Why a password or a stored verifier is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifierError {
    /// Only ASCII passwords, which need no SASLprep, are supported.
    #[error("a password must be printable ASCII and not empty: choose another one")]
    Password,
    /// Fewer iterations than [`ITERATIONS_MIN`].
    #[error("a SCRAM verifier needs at least {ITERATIONS_MIN} iterations")]
    Iterations,
    /// The text is no verifier.
    #[error("the text is not a SCRAM-SHA-256 verifier")]
    Text,
}

impl Verifier {
    /// The verifier of `password`.
    ///
    /// # Errors
    /// [`VerifierError::Password`] and [`VerifierError::Iterations`].
    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> Result<Self, VerifierError> {
        if password.is_empty() || !password.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(VerifierError::Password);
        }
        if iterations < ITERATIONS_MIN {
            return Err(VerifierError::Iterations);
        }
        let salted = salted_password(password.as_bytes(), salt, iterations);
        Ok(Self {
            salt: salt.to_vec(),
            iterations,
            stored_key: Sha256::digest(hmac(&salted, &[b"Client Key"])).into(),
            server_key: hmac(&salted, &[b"Server Key"]),
        })
    }

    /// A verifier no password fits, for roles that do not exist: the same `secret` gives the same
    /// `name` the same salt, so that an attacker cannot tell the role from a real one.
    pub fn mock(secret: &[u8; 32], name: &str, iterations: u32) -> Self {
        let salt = hmac(secret, &[b"salt", name.as_bytes()]);
        Self {
            salt: salt[..16].to_vec(),
            iterations,
            stored_key: hmac(secret, &[b"stored key", name.as_bytes()]),
            server_key: hmac(secret, &[b"server key", name.as_bytes()]),
        }
    }
}

impl fmt::Display for Verifier {
    /// As PostgreSQL keeps it: `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let salt = BASE64.encode(&self.salt);
        let stored = BASE64.encode(self.stored_key);
        let server = BASE64.encode(self.server_key);
        write!(f, "{MECHANISM}${}:{salt}${stored}:{server}", self.iterations)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({} iterations)", self.iterations)
    }
}

impl FromStr for Verifier {
    type Err = VerifierError;

    fn from_str(text: &str) -> Result<Self, VerifierError> {
        let parse = || {
            let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
            let (settings, keys) = rest.split_once('$')?;
            let (iterations, salt) = settings.split_once(':')?;
            let (stored, server) = keys.split_once(':')?;
            Some(Self {
                salt: BASE64.decode(salt).ok()?,
                iterations: iterations.parse().ok()?,
                stored_key: BASE64.decode(stored).ok()?.try_into().ok()?,
                server_key: BASE64.decode(server).ok()?.try_into().ok()?,
            })
        };
        let verifier = parse().ok_or(VerifierError::Text)?;
        if verifier.iterations < ITERATIONS_MIN {
            return Err(VerifierError::Iterations);
        }
        Ok(verifier)
    }
}

/// A client's message that breaks the mechanism's rules. SQLSTATE 08P01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// The message does not have the form it should have.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// The client insists on channel binding.
    #[error("client requires SCRAM channel binding, but it is not supported")]
    ChannelBinding,
    /// The client wants to act for another role.
    #[error("client uses authorization identity, but it is not supported")]
    AuthorizationIdentity,
    /// The client needs an extension of the mechanism.
    #[error("client requires an unsupported SCRAM extension")]
    Extension,
    /// The second message does not belong to the first.
    #[error("invalid SCRAM response: nonce or channel binding does not match")]
    Mismatch,
    /// A message came after the end.
    #[error("unexpected SCRAM message: the exchange is over")]
    Over,
}

/// Reaction to a client's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send this (AuthenticationSASLContinue) and wait for the next message.
    Continue(String),
    /// The password is right: send this (AuthenticationSASLFinal), then AuthenticationOk.
    Accepted(String),
    /// The password is wrong.
    Denied,
}

/// SCRAM exchange with one client, from the server's side.
pub struct ScramServer {
    verifier: Arc<Verifier>,
    server_nonce: String,
    state: ScramState,
}

enum ScramState {
    ExpectFirst,
    ExpectFinal {
        /// The gs2 header as it must come back.
        header: String,
        nonce: String,
        /// `client-first-message-bare "," server-first-message ","`
        auth_message_prefix: String,
    },
    Finished,
}

impl ScramServer {
    /// An exchange about `verifier`. `server_nonce` must be fresh, unpredictable, printable ASCII
    /// without a comma; 18 random bytes in base64 are what PostgreSQL uses.
    pub fn new(verifier: Arc<Verifier>, server_nonce: String) -> Self {
        Self { verifier, server_nonce, state: ScramState::ExpectFirst }
    }

    /// Takes the client's next message.
    ///
    /// # Errors
    /// [`ScramError`] when the message breaks the rules; the exchange is over then.
    pub fn step(&mut self, message: &[u8]) -> Result<Outcome, ScramError> {
        match std::mem::replace(&mut self.state, ScramState::Finished) {
            ScramState::ExpectFirst => self.handle_first(text(message)?),
            ScramState::ExpectFinal { header, nonce, auth_message_prefix: so_far } => {
                self.handle_final(text(message)?, &header, &nonce, &so_far)
            }
            ScramState::Finished => Err(ScramError::Over),
        }
    }

    fn handle_first(&mut self, message: &str) -> Result<Outcome, ScramError> {
        let mut parts = message.splitn(3, ',');
        let mut part = || parts.next().ok_or(ScramError::Malformed("a part is missing"));
        let (flag, identity, message_bare) = (part()?, part()?, part()?);
        match flag {
            // `y`: the client could bind channels but believes that the server cannot. It is right.
            "n" | "y" => {}
            _ if flag.starts_with("p=") => return Err(ScramError::ChannelBinding),
            _ => return Err(ScramError::Malformed("unknown channel-binding flag")),
        }
        if !identity.is_empty() {
            return Err(ScramError::AuthorizationIdentity);
        }
        let client_nonce = client_nonce(message_bare)?;
        let nonce = format!("{client_nonce}{}", self.server_nonce);
        let salt = BASE64.encode(&self.verifier.salt);
        let reply = format!("r={nonce},s={salt},i={}", self.verifier.iterations);
        self.state = ScramState::ExpectFinal {
            header: BASE64.encode(format!("{flag},,")),
            nonce,
            auth_message_prefix: format!("{message_bare},{reply},"),
        };
        Ok(Outcome::Continue(reply))
    }

    fn handle_final(
        &self,
        message: &str,
        header: &str,
        nonce: &str,
        auth_message_prefix: &str,
    ) -> Result<Outcome, ScramError> {
        let (without_proof, proof) =
            message.rsplit_once(",p=").ok_or(ScramError::Malformed("the proof is missing"))?;
        let mut attributes = without_proof.split(',');
        let mut attribute = |prefix| attributes.next().and_then(|text| text.strip_prefix(prefix));
        if attribute("c=") != Some(header) || attribute("r=") != Some(nonce) {
            return Err(ScramError::Mismatch);
        }
        let proof: [u8; 32] = BASE64
            .decode(proof)
            .ok()
            .and_then(|proof| proof.try_into().ok())
            .ok_or(ScramError::Malformed("the proof is not a hash in base64"))?;
        let signed: [&[u8]; 2] = [auth_message_prefix.as_bytes(), without_proof.as_bytes()];
        let mut client_key = hmac(&self.verifier.stored_key, &signed);
        for (byte, proven) in client_key.iter_mut().zip(proof) {
            *byte ^= proven;
        }
        let signature = BASE64.encode(hmac(&self.verifier.server_key, &signed));
        let is_right = Sha256::digest(client_key)[..].ct_eq(&self.verifier.stored_key);
        if bool::from(is_right) {
            return Ok(Outcome::Accepted(format!("v={signature}")));
        }
        Ok(Outcome::Denied)
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    std::str::from_utf8(message).map_err(|_| ScramError::Malformed("it is not UTF-8"))
}

/// The nonce of `client-first-message-bare`, which is `n=user,r=nonce[,extensions]`.
fn client_nonce(bare: &str) -> Result<&str, ScramError> {
    let mut attributes = bare.split(',');
    match attributes.next() {
        Some(name) if name.starts_with("n=") => {}
        Some(extension) if extension.starts_with("m=") => return Err(ScramError::Extension),
        _ => return Err(ScramError::Malformed("the user name is missing")),
    }
    let nonce = attributes
        .next()
        .and_then(|attribute| attribute.strip_prefix("r="))
        .ok_or(ScramError::Malformed("the nonce is missing"))?;
    if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ScramError::Malformed("the nonce is not printable"));
    }
    Ok(nonce)
}

/// `Hi` of RFC 5802: PBKDF2 with HMAC-SHA-256 and one block of output.
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let keyed = new_mac(password);
    let mut block = finish_mac(keyed.clone(), &[salt, &1_u32.to_be_bytes()]);
    let mut result = block;
    for _ in 1..iterations {
        block = finish_mac(keyed.clone(), &[&block]);
        for (byte, mixed) in result.iter_mut().zip(block) {
            *byte ^= mixed;
        }
    }
    result
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    finish_mac(new_mac(key), parts)
}

fn new_mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of every length")
}

fn finish_mac(mut mac: Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests;
