//! `~/.pgpass`: lines of `host:port:database:user:password`, as "The Password File" in PostgreSQL's
//! documentation has it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::parameters::Parameters;

/// The password of the first line that fits, from the file that is named or the user's own.
///
/// # Errors
/// When the file that is named cannot be read or can be read by others.
pub(super) fn find_password(
    named: Option<&str>,
    parameters: &Parameters,
) -> Result<Option<String>, String> {
    let (path, is_named) = match named {
        Some(path) => (PathBuf::from(path), true),
        None => match std::env::var_os("HOME") {
            Some(home) => (Path::new(&home).join(".pgpass"), false),
            None => return Ok(None),
        },
    };
    let passfile_error = |reason: String| format!("passfile {}: {reason}", path.display());
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(_) if !is_named => return Ok(None),
        Err(error) => return Err(passfile_error(error.to_string())),
    };
    let is_shared = metadata.mode() & 0o077 != 0;
    if is_shared && !is_named {
        tracing::warn!(path = %path.display(), "other users can read it, so it is ignored: chmod 600 it");
        return Ok(None);
    }
    if is_shared {
        return Err(passfile_error("other users can read it: chmod 600 it".to_owned()));
    }
    let text = egret_linux::regular_file::read_to_string(&path)
        .map_err(|error| passfile_error(error.to_string()))?;
    Ok(matching_password(&text, parameters))
}

fn matching_password(text: &str, parameters: &Parameters) -> Option<String> {
    let value = |name: &str, default: &str| {
        let value = parameters.get(name).map_or(default, String::as_str);
        // Of several hosts the first one is looked up.
        value.split(',').next().unwrap_or_default().to_owned()
    };
    let host = value("host", "localhost");
    let host = if host.starts_with('/') { "localhost".to_owned() } else { host };
    let user = value("user", "");
    let key = [host, value("port", "5432"), value("dbname", &user), user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = split_fields(line);
        let (password, fields) = fields.split_last()?;
        let is_match = fields.len() == key.len()
            && fields.iter().zip(&key).all(|(field, expected)| field == "*" || field == expected);
        is_match.then(|| password.clone())
    })
}

/// Fields between colons; a backslash takes the next character as it is.
fn split_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        let last = fields.len() - 1;
        match character {
            '\\' => fields[last].extend(rest.next()),
            ':' => fields.push(String::new()),
            found => fields[last].push(found),
        }
    }
    fields
}

#[cfg(test)]
mod tests;
