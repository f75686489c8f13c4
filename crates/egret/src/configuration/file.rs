//! Reads `egret.toml`: one table per section, scalars in it, every value with its line.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use egret_base::settings::{Layers, Origin, SettingError};
use toml::de::{DeTable, DeValue};

/// Reads the file that a command line names into `layers`. Any user may own it, but not all may
/// write to it.
///
/// # Errors
/// [`SettingError`] with file and line, when the file cannot be read or is not of that form.
pub(super) fn read_named(path: &Path, layers: &mut Layers) -> Result<(), SettingError> {
    let file = std::fs::File::open(path);
    let refuse = |message: String| file_error(path, message);
    let file = file.map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let metadata = file.metadata().map_err(|error| refuse(format!("cannot be read: {error}")))?;
    if metadata.mode() & 0o002 != 0 {
        return Err(refuse(format!("every user can write to it: chmod o-w {}", path.display())));
    }
    read_settings(file, path, layers)
}

/// Reads the file of the current directory, which no option names: only root and this user may be
/// able to write to it.
///
/// # Errors
/// As [`read_named`], and when another user could change it.
pub(super) fn read_default(path: &Path, layers: &mut Layers) -> Result<(), SettingError> {
    let file = egret_linux::trust::open(path).map_err(|error| {
        file_error(
            path,
            format!(
                "the file of the current directory is not read: {error}; name it with --config if you mean it, or run egret elsewhere"
            ),
        )
    })?;
    read_settings(file, path, layers)
}

fn file_error(path: &Path, message: String) -> SettingError {
    SettingError { origin: Origin::File(path.display().to_string()), message }
}

fn read_settings(
    mut file: std::fs::File,
    path: &Path,
    layers: &mut Layers,
) -> Result<(), SettingError> {
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(|error| file_error(path, format!("cannot be read: {error}")))?;
    parse(&path.display().to_string(), &text, layers)
}

pub(super) fn parse(name: &str, text: &str, layers: &mut Layers) -> Result<(), SettingError> {
    let origin_at = |offset: usize| {
        let line = text[..offset.min(text.len())].matches('\n').count() + 1;
        Origin::File(format!("{name}:{line}"))
    };
    let document = DeTable::parse(text).map_err(|error| SettingError {
        origin: origin_at(error.span().map_or(0, |span| span.start)),
        message: error.message().trim().replace('\n', "; "),
    })?;
    for (section, table) in document.get_ref() {
        let at = origin_at(section.span().start);
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
            let origin = origin_at(field.span().start);
            match scalar(value.get_ref()) {
                Ok(text) => layers.put(&key, &text, origin),
                Err(kind) => {
                    return Err(SettingError {
                        origin,
                        message: format!(
                            "{key}: {kind} cannot be a setting: write a number, true, false or \
                             \"text\""
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
