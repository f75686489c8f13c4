//! Fields of requests that become statements or names of PostgreSQL, which has no U+0000 in its
//! texts.

use std::iter;

use serde::de::{Deserialize, Deserializer, Error};

/// A field with texts for PostgreSQL.
pub(crate) trait SqlText {
    fn texts(&self) -> impl Iterator<Item = &str>;
}

impl SqlText for String {
    fn texts(&self) -> impl Iterator<Item = &str> {
        iter::once(self.as_str())
    }
}

impl SqlText for Option<String> {
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.as_deref().into_iter()
    }
}

impl SqlText for Vec<String> {
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.iter().map(String::as_str)
    }
}

impl SqlText for Vec<Vec<String>> {
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.iter().flatten().map(String::as_str)
    }
}

/// Reads a field and refuses U+0000 in it: PostgreSQL would refuse the whole message, which is not
/// told apart from a fault of the server.
pub(crate) fn sql_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + SqlText,
{
    let field = T::deserialize(deserializer)?;
    if field.texts().any(|text| text.contains('\0')) {
        return Err(D::Error::custom("PostgreSQL cannot store U+0000 in a text"));
    }
    Ok(field)
}

#[cfg(test)]
mod tests;
