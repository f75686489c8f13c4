//! Identifiers: UUIDv7 (RFC 9562), one newtype per noun, made from arguments only.

/// Declares a newtype around a UUIDv7.
///
/// The id sorts by creation time, is made by `new(now, random)` and reads and prints as the
/// canonical 36-character text.
#[macro_export]
macro_rules! define_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($crate::id::Uuid);

        impl $name {
            /// A new id for the moment `now` from ten random bytes.
            pub fn new(now: $crate::Timestamp, random: [u8; 10]) -> Self {
                Self($crate::id::v7(now, random))
            }

            /// The 32 hexadecimal digits without dashes, as used in file names.
            pub fn hex(&self) -> String {
                self.0.simple().to_string()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $crate::id::parse(text).map(Self)
            }
        }

        impl $crate::id::Serialize for $name {
            fn serialize<S: $crate::id::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> $crate::id::Deserialize<'de> for $name {
            fn deserialize<D: $crate::id::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <String as $crate::id::Deserialize>::deserialize(d)?;
                text.parse().map_err(<D::Error as $crate::id::DeError>::custom)
            }
        }
    };
}

#[doc(hidden)]
pub use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as DeError};
#[doc(hidden)]
pub use uuid::Uuid;

use crate::clock::Timestamp;

/// A UUIDv7 from a moment and ten random bytes (of which 74 bits are used).
pub fn v7(now: Timestamp, random: [u8; 10]) -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(now.as_millis_unsigned(), &random).into_uuid()
}

/// Reads a UUID of version 7, with or without dashes.
///
/// # Errors
/// A message that names the text when it is not such an id.
pub fn parse(text: &str) -> Result<Uuid, String> {
    match Uuid::try_parse(text) {
        Ok(id) if id.get_version_num() == 7 => Ok(id),
        Ok(id) => Err(format!("`{id}` is not an Egret id: it must be a UUID of version 7")),
        Err(_) => Err(format!("`{text}` is not an id: it must be a UUID of version 7")),
    }
}

#[cfg(test)]
mod tests;
