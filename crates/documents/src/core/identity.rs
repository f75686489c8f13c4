//! Canonical identities, and the aliases made of them.
//!
//! The canonical identity of a document is a JSON array of the values at its identity paths, in the
//! declared order and without white space; numbers are in their shortest decimal form, so that `1`,
//! `1.0` and `1e0` are the same: what `JSON.stringify` makes of it in JavaScript. The alias is the
//! UUIDv5 (RFC 9562) of that text in the namespace of the collection, which is the UUIDv5 of its
//! name in [`EGRET_NAMESPACE`]. An alias can be computed from the values alone.

use std::fmt::Write;

use serde_json::{Number, Value};
use sha1::{Digest, Sha1};
use uuid::{Builder, Uuid};

use crate::model::{AliasId, CollectionName};

/// Namespace of the collections' namespaces.
pub(crate) const EGRET_NAMESPACE: Uuid = Uuid::from_u128(0x8f1e_52d7_30a4_4c6b_9b1d_6c0e_f5a2_7d43);

/// Bytes of a canonical identity, at most: error messages contain it.
pub(crate) const IDENTITY_BYTES_MAX: usize = 4_096;

/// Namespace of a collection's aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Namespace(Uuid);

impl Namespace {
    /// Namespace of a collection.
    pub(crate) fn for_collection(collection: &CollectionName) -> Self {
        Self(uuid_v5(EGRET_NAMESPACE, collection.as_str()))
    }

    /// Alias of an identity in the namespace.
    pub(crate) fn alias(&self, identity: &Identity) -> AliasId {
        AliasId(uuid_v5(self.0, &identity.0))
    }
}

/// A UUIDv5. Computed here, because the SHA-1 of crate `uuid` does not use the processor's
/// instructions, and a document may have many aliases.
pub(crate) fn uuid_v5(namespace: Uuid, name: impl AsRef<[u8]>) -> Uuid {
    let mut hash = Sha1::new();
    hash.update(namespace.as_bytes());
    hash.update(name);
    let digest: [u8; 20] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Builder::from_sha1_bytes(bytes).into_uuid()
}

/// A canonical identity, as JSON text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(String);

impl Identity {
    /// Canonical identity of these values.
    ///
    /// # Errors
    /// A value is not a string, number or boolean, or the text is too long.
    pub fn from_values<'a>(values: impl IntoIterator<Item = &'a Value>) -> Result<Self, String> {
        let mut text = String::with_capacity(64);
        text.push('[');
        for value in values {
            if text.len() > 1 {
                text.push(',');
            }
            match value {
                Value::String(string) => push_quoted(&mut text, string),
                Value::Number(number) => push_number(&mut text, number),
                Value::Bool(true) => text.push_str("true"),
                Value::Bool(false) => text.push_str("false"),
                other => {
                    let kind = super::json::kind(other);
                    return Err(format!("a part of an identity cannot be {kind}"));
                }
            }
            if text.len() >= IDENTITY_BYTES_MAX {
                return Err(format!("an identity has at most {IDENTITY_BYTES_MAX} bytes"));
            }
        }
        text.push(']');
        Ok(Self(text))
    }

    /// Wraps the text of an identity that was stored.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The identity as JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The values of which it was made.
    pub fn values(&self) -> Vec<Value> {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

fn push_quoted(text: &mut String, string: &str) {
    if string.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        text.push('"');
        text.push_str(string);
        text.push('"');
        return;
    }
    text.push_str(&serde_json::to_string(string).expect("a string can be written as JSON"));
}

/// Writes a number as RFC 8785 and JavaScript do; 64-bit integers keep all digits. Implemented here
/// rather than by a library, because aliases are stored and must never change.
fn push_number(text: &mut String, number: &Number) {
    let number = to_integer(number).unwrap_or_else(|| number.clone());
    let written = match number.as_f64().filter(|_| number.is_f64()) {
        None => write!(text, "{number}"),
        Some(double) if (1e-6..1e21).contains(&double.abs()) => write!(text, "{double}"),
        Some(double) => {
            let shortest = format!("{double:e}").replace('e', "e+").replace("e+-", "e-");
            write!(text, "{shortest}")
        }
    };
    written.expect("writing to a string cannot fail");
}

/// The 64-bit integer that a double equals, if any. Values read by `json` contain no such double.
fn to_integer(number: &Number) -> Option<Number> {
    if !number.is_f64() {
        return None;
    }
    let double = number.as_f64().filter(|double| double.fract() == 0.0)?;
    // The shortest digits of the double, then zeros: a text with these digits is parsed as that
    // integer.
    let digits = double.to_string();
    let signed = digits.parse::<i64>().ok().map(Number::from);
    signed.or_else(|| digits.parse::<u64>().ok().map(Number::from))
}

/// Whether two values are equal, ignoring the order of properties and treating `1` and `1.0` alike.
pub(crate) fn is_equivalent(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other
                || to_integer(one).as_ref().unwrap_or(one)
                    == to_integer(other).as_ref().unwrap_or(other)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_equivalent(a, b))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has_same =
                |(name, value)| other.get(name).is_some_and(|same| is_equivalent(value, same));
            one.len() == other.len() && one.iter().all(has_same)
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests;
