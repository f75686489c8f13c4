//! The public keys of an issuer: a JWK Set (RFC 7517), read within bounds.
//!
//! A key verifies the algorithms of its own kind only, so a token cannot choose how its key is
//! read. Keys that cannot be used here (other curves, keys for encryption, secrets) are passed
//! over.

use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use egret_base::Limit;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::jws::{Algorithm, KEY_ID_BYTES_MAX, SignedToken};
use super::refusal::JwtRefusal;

/// Most keys of an issuer, those included that cannot be used.
const KEYS_MAX: Limit = Limit::new("oidc_keys_max", 100);

/// Bytes of an RSA modulus, at least: 2048 bits.
const MODULUS_BYTES_MIN: usize = 256;

/// Bits of an RSA modulus: what a verification costs grows with their square.
const MODULUS_BITS_MAX: Limit = Limit::new("oidc_rsa_bits_max", 4_096);

/// Bytes of an RSA exponent: larger ones make a verification slow.
const EXPONENT_BYTES_MAX: usize = 4;

/// The parameters of a public key.
#[derive(Clone, Debug)]
enum KeyMaterial {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A public key of the issuer.
#[derive(Clone, Debug)]
pub(super) struct VerificationKey {
    id: Option<String>,
    /// The only algorithm, where the issuer names it.
    algorithm: Option<Algorithm>,
    material: KeyMaterial,
    /// SHA-256 of all of the above: another key under the same id is another key.
    pub(super) fingerprint: Fingerprint,
}

/// Identifies a key by its content.
pub(super) type Fingerprint = [u8; 32];

/// The keys of an issuer that can be used.
#[derive(Clone, Debug, Default)]
pub(super) struct KeySet(Vec<Arc<VerificationKey>>);

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a JWK Set.
    ///
    /// # Errors
    /// A description of the failure.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        let set: JwkSet = serde_json::from_slice(json)
            .map_err(|error| format!("the keys are not a JWK Set: {error}"))?;
        KEYS_MAX.check(set.keys.len() as u64).map_err(|exceeded| exceeded.to_string())?;
        let keys: Vec<_> = set
            .keys
            .into_iter()
            .filter_map(|key| {
                let key: Jwk = serde_json::from_value(key).ok()?;
                VerificationKey::from_jwk(key).map(Arc::new)
            })
            .collect();
        if keys.is_empty() {
            return Err("the JWK Set has no usable key".to_owned());
        }
        Ok(Self(keys))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn fingerprints(&self) -> HashSet<Fingerprint> {
        self.0.iter().map(|key| key.fingerprint).collect()
    }

    /// The key that a token names. One without `kid` means the only key for its algorithm.
    ///
    /// # Errors
    /// [`JwtRefusal::KeyUnknown`], or [`JwtRefusal::Algorithm`] where the key is not for that
    /// algorithm.
    pub(super) fn find(&self, token: &SignedToken<'_>) -> Result<Arc<VerificationKey>, JwtRefusal> {
        let mut suitable = self.0.iter().filter(|key| key.supports(token.algorithm));
        let Some(id) = &token.key_id else {
            return match (suitable.next(), suitable.next()) {
                (Some(key), None) => Ok(key.clone()),
                _ => Err(JwtRefusal::KeyUnknown),
            };
        };
        if let Some(key) = suitable.find(|key| key.id.as_ref() == Some(id)) {
            return Ok(key.clone());
        }
        let is_known = self.0.iter().any(|key| key.id.as_ref() == Some(id));
        Err(if is_known { JwtRefusal::Algorithm } else { JwtRefusal::KeyUnknown })
    }
}

impl VerificationKey {
    fn from_jwk(key: Jwk) -> Option<Self> {
        if key.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return None;
        }
        let is_long = |id: &String| id.len() > KEY_ID_BYTES_MAX;
        if key.kid.as_ref().is_some_and(is_long) {
            return None;
        }
        let algorithm = match &key.alg {
            Some(name) => Some(Algorithm::from_name(name)?),
            None => None,
        };
        let material = KeyMaterial::from_jwk(&key)?;
        let mut hash = Sha256::new();
        for part in material.hash_parts() {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update(key.alg.as_deref().unwrap_or_default());
        hash.update([0]);
        hash.update(key.kid.as_deref().unwrap_or_default());
        Some(Self { id: key.kid, algorithm, material, fingerprint: hash.finalize().into() })
    }

    /// Whether it verifies signatures of this algorithm.
    fn supports(&self, algorithm: Algorithm) -> bool {
        use Algorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        let matches_kind = match self.material {
            KeyMaterial::Rsa { .. } => {
                matches!(algorithm, Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512)
            }
            KeyMaterial::P256(_) => algorithm == Es256,
            KeyMaterial::P384(_) => algorithm == Es384,
            KeyMaterial::Ed25519(_) => algorithm == EdDsa,
        };
        matches_kind && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Whether the signature of a token is this key's.
    pub(super) fn verifies(&self, token: &SignedToken<'_>) -> bool {
        let (message, signature) = (token.message, token.signature.as_slice());
        let verify_point = |algorithm: &'static dyn VerificationAlgorithm, point: &[u8]| {
            UnparsedPublicKey::new(algorithm, point).verify(message, signature).is_ok()
        };
        match &self.material {
            KeyMaterial::Rsa { modulus, exponent } => {
                let Some(parameters) = rsa_parameters(token.algorithm) else {
                    return false;
                };
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(parameters, message, signature).is_ok()
            }
            KeyMaterial::P256(point) => verify_point(&ECDSA_P256_SHA256_FIXED, point),
            KeyMaterial::P384(point) => verify_point(&ECDSA_P384_SHA384_FIXED, point),
            KeyMaterial::Ed25519(point) => verify_point(&ED25519, point),
        }
    }
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
        Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => return None,
    })
}

impl KeyMaterial {
    fn from_jwk(key: &Jwk) -> Option<Self> {
        match (key.kty.as_str(), key.crv.as_deref()) {
            ("RSA", _) => {
                let (modulus, exponent) = (decode_integer(&key.n)?, decode_integer(&key.e)?);
                let is_bounded = modulus.len() >= MODULUS_BYTES_MIN
                    && MODULUS_BITS_MAX.check(modulus.len() as u64 * 8).is_ok()
                    && (1..=EXPONENT_BYTES_MAX).contains(&exponent.len());
                is_bounded.then_some(KeyMaterial::Rsa { modulus, exponent })
            }
            ("EC", Some("P-256")) => decode_point(key, 32).map(KeyMaterial::P256),
            ("EC", Some("P-384")) => decode_point(key, 48).map(KeyMaterial::P384),
            ("OKP", Some("Ed25519")) => {
                decode_base64url(&key.x).filter(|point| point.len() == 32).map(KeyMaterial::Ed25519)
            }
            _ => None,
        }
    }

    fn hash_parts(&self) -> [&[u8]; 3] {
        match self {
            KeyMaterial::Rsa { modulus, exponent } => [b"RSA", modulus, exponent],
            KeyMaterial::P256(point) => [b"P-256", point, b""],
            KeyMaterial::P384(point) => [b"P-384", point, b""],
            KeyMaterial::Ed25519(point) => [b"Ed25519", point, b""],
        }
    }
}

fn decode_base64url(text: &Option<String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.as_ref()?).ok()
}

/// A number without leading zeros, as ring takes it.
fn decode_integer(text: &Option<String>) -> Option<Vec<u8>> {
    let bytes = decode_base64url(text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Some(bytes[zeros..].to_vec())
}

/// An uncompressed point (SEC 1 section 2.3.3) of two coordinates of this size.
fn decode_point(key: &Jwk, coordinate_bytes: usize) -> Option<Vec<u8>> {
    let (x, y) = (decode_base64url(&key.x)?, decode_base64url(&key.y)?);
    let is_sized = x.len() == coordinate_bytes && y.len() == coordinate_bytes;
    is_sized.then(|| [&[4], x.as_slice(), y.as_slice()].concat())
}

#[cfg(test)]
mod tests;
