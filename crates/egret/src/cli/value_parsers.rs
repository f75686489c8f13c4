//! Parsers of the values of arguments.

use egret_base::settings::Value;

/// Splits an argument of the form `key=value`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form KEY=VALUE")),
    }
}

/// Reads a value as a setting of its type would be.
pub(super) fn value<T: Value>(text: &str) -> Result<T, String> {
    T::read(text)
}
