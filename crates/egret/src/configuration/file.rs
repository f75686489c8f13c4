//! Reads `egret.toml`: one table per section, scalars in it, every value with its line.

use std::path::Path;

use egret_base::settings::{Layers, Origin, SettingError};
use toml::de::{DeTable, DeValue};

/// Puts every value of the file into `layers`.
///
/// # Errors
/// [`SettingError`] with file and line, when the file cannot be read or is not of that form.
pub(super) fn read(path: &Path, layers: &mut Layers) -> Result<(), SettingError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| SettingError {
        origin: Origin::File(name.clone()),
        message: format!("cannot be read: {error}"),
    })?;
    parse(&name, &text, layers)
}

pub(super) fn parse(name: &str, text: &str, layers: &mut Layers) -> Result<(), SettingError> {
    let place = |offset: usize| {
        let line = text[..offset.min(text.len())].matches('\n').count() + 1;
        Origin::File(format!("{name}:{line}"))
    };
    let document = DeTable::parse(text).map_err(|error| SettingError {
        origin: place(error.span().map_or(0, |span| span.start)),
        message: error.message().trim().replace('\n', "; "),
    })?;
    for (section, table) in document.get_ref() {
        let at = place(section.span().start);
        let DeValue::Table(table) = table.get_ref() else {
            return Err(SettingError {
                origin: at,
                message: format!(
                    "`{}` stands outside a section: begin one with `[section]`",
                    section.get_ref()
                ),
            });
        };
        for (field, value) in table {
            let key = format!("{}.{}", section.get_ref(), field.get_ref());
            let origin = place(field.span().start);
            match scalar(value.get_ref()) {
                Ok(text) => layers.put(&key, &text, origin),
                Err(what) => {
                    return Err(SettingError {
                        origin,
                        message: format!(
                            "{key}: {what} cannot be a setting: write one number, true, false or \"text\""
                        ),
                    });
                }
            }
        }
    }
    Ok(())
}

fn scalar(value: &DeValue<'_>) -> Result<String, &'static str> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(value) => Ok(value.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| "such a large number"),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Datetime(_) => Err("a date"),
        DeValue::Array(_) => Err("an array"),
        DeValue::Table(_) => Err("a table"),
    }
}
