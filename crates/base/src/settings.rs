//! Settings: one struct per part, every field documented with its unit and default, every value
//! traceable to where it came from.
//!
//! [`settings!`](crate::settings!) declares the struct; [`Layers`] merges `egret.toml`, `EGRET_…`
//! variables and flags, in that order, and refuses keys that are not declared.

use std::collections::BTreeMap;
use std::fmt;

pub use crate::value::{ByteSize, ConfigDuration, Range, Value};

/// Declaration of one setting, for documentation and listings.
#[derive(Clone, Debug)]
pub struct SettingDeclaration {
    /// Section and name, e.g. `branches.ttl_max`.
    pub key: String,
    /// What it means, from the field's documentation.
    pub doc: &'static str,
    /// What may be written, in a few words.
    pub form: String,
    /// The default as text.
    pub default: String,
}

/// A struct of settings under one section of `egret.toml`.
pub trait Section: Default {
    /// Name of the section in `egret.toml`.
    const NAME: &'static str;

    /// Every setting of the section, in the order of declaration.
    fn declared() -> Vec<SettingDeclaration>;

    /// Sets one field from text.
    ///
    /// # Errors
    /// A message that says what is wrong with the value. Panics never.
    fn set(&mut self, field: &str, text: &str) -> Result<(), String>;

    /// The present value of one field as text.
    fn get(&self, field: &str) -> Option<String>;
}

/// The range of a setting, by how [`settings!`](crate::settings!) marks it.
#[doc(hidden)]
#[macro_export]
macro_rules! setting_range {
    () => {
        $crate::settings::Range::Any
    };
    (positive) => {
        $crate::settings::Range::Positive
    };
    (at_least $least:literal) => {
        $crate::settings::Range::AtLeast($least)
    };
}

/// Declares a settings struct with its section, defaults and documentation. What must be above zero
/// is marked `waiting_max: u32 = 100; positive,`, what must be more than that `waiting_max: u32 =
/// 100; at_least 10,`.
#[macro_export]
macro_rules! settings {
    (
        $(#[$struct_doc:meta])*
        pub struct $name:ident in $section:literal {
            $( $(#[doc = $doc:literal])+ $field:ident : $kind:ty = $default:expr $(; $range:ident $($least:literal)?)? ),* $(,)?
        }
    ) => {
        $(#[$struct_doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $kind, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $crate::settings::Section for $name {
            const NAME: &'static str = $section;

            fn declared() -> Vec<$crate::settings::SettingDeclaration> {
                use $crate::settings::Value;
                let defaults = Self::default();
                vec![$(
                    $crate::settings::SettingDeclaration {
                        key: concat!($section, ".", stringify!($field)).to_owned(),
                        doc: concat!($($doc, "\n"),+),
                        form: $crate::setting_range!($($range $($least)?)?).form::<$kind>(),
                        default: Value::show(&defaults.$field),
                    },
                )*]
            }

            fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
                match field {
                    $( stringify!($field) => {
                        self.$field = $crate::setting_range!($($range $($least)?)?).read(text)?;
                        Ok(())
                    } )*
                    _ => Err(format!("there is no setting {}.{field}", $section)),
                }
            }

            fn get(&self, field: &str) -> Option<String> {
                match field {
                    $( stringify!($field) => Some($crate::settings::Value::show(&self.$field)), )*
                    _ => None,
                }
            }
        }
    };
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default: the setting is not set anywhere.
    Default,
    /// A line of a configuration file.
    File(String),
    /// The environment variable with this name.
    Environment(String),
    /// A flag on the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::File(path) => write!(f, "{path}"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// What is wrong with the configuration: which key, where it stands, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {message}")]
pub struct SettingError {
    /// Where the key stands.
    pub origin: Origin,
    /// Why the value is refused.
    pub message: String,
}

/// The values given by file, environment and flags, later ones winning.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    values: BTreeMap<String, (String, Origin)>,
}

impl Layers {
    /// Adds a value; a later call for the same key wins.
    pub fn put(&mut self, key: &str, text: &str, origin: Origin) {
        self.values.insert(key.to_owned(), (text.to_owned(), origin));
    }

    /// Where the value of `key` came from.
    pub fn origin(&self, key: &str) -> Origin {
        self.values.get(key).map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// Builds one section from its defaults and the values given.
    ///
    /// # Errors
    /// A [`SettingError`] that names the key and its origin when a value cannot be read.
    pub fn section<S: Section>(&self) -> Result<S, SettingError> {
        let mut section = S::default();
        for (key, (text, origin)) in &self.values {
            let Some((name, field)) = key.split_once('.') else {
                continue;
            };
            if name != S::NAME {
                continue;
            }
            section.set(field, text).map_err(|message| SettingError {
                origin: origin.clone(),
                message: format!("{key}: {message}"),
            })?;
        }
        Ok(section)
    }

    /// Checks that every key given is a declared one.
    ///
    /// # Errors
    /// A [`SettingError`] with the nearest declared key as a suggestion.
    pub fn reject_unknown(&self, declared: &[SettingDeclaration]) -> Result<(), SettingError> {
        for (key, (_, origin)) in &self.values {
            if declared.iter().any(|setting| setting.key == *key) {
                continue;
            }
            let written = key_in_origin(key, origin);
            let message = match nearest(key, declared.iter().map(|setting| setting.key.as_str())) {
                Some(near) => format!(
                    "unknown setting `{written}`: did you mean `{}`?",
                    key_in_origin(near, origin)
                ),
                None => format!("unknown setting `{written}`: `egret config` lists them all"),
            };
            return Err(SettingError { origin: origin.clone(), message });
        }
        Ok(())
    }
}

/// The key as its origin spells it: `branches.ttl_max` or `EGRET_BRANCHES_TTL_MAX`.
fn key_in_origin(key: &str, origin: &Origin) -> String {
    match origin {
        Origin::Environment(_) => environment_name(key),
        _ => key.to_owned(),
    }
}

/// The environment variable that sets `key`: `branches.ttl_max` is `EGRET_BRANCHES_TTL_MAX`.
pub fn environment_name(key: &str) -> String {
    format!("EGRET_{}", key.replace('.', "_").to_ascii_uppercase())
}

/// The candidate most like `word`, when one is near enough to be a slip of the pen.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests;
