//! The command line, with passwords taken out of what `ps` shows.
//!
//! Every local user can read the arguments of a process. An argument that holds a password (in a
//! connection string, or in `--set postgres.url=…`), or a URL whose path may be a secret (a
//! webhook's), is therefore passed on in memory: the program executes itself anew, before it does
//! anything else, with the password masked in its arguments and the arguments as they were typed in
//! an anonymous file that only it has open. For the milliseconds before that, and in the history of
//! the shell, the password is visible; `EGRET_POSTGRES_URL`, a passfile or the configuration file
//! avoid both.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use egret_linux::inherited;
use rustix::fs::MemfdFlags;

use crate::configuration::{mask_secrets, mask_url_path};

/// Begins the first argument of an executed-anew program; the number of the open file follows.
const DESCRIPTOR_PREFIX: &str = "--arguments-in-descriptor=";

/// The arguments as they were typed, the program's name first.
///
/// # Errors
/// When the program cannot be executed anew although its arguments hold a password.
pub(crate) fn read_arguments() -> anyhow::Result<Vec<OsString>> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let first_argument = arguments.get(1).and_then(|first| first.to_str());
    if let Some(number) = first_argument.and_then(|first| first.strip_prefix(DESCRIPTOR_PREFIX)) {
        return read_from_descriptor(number);
    }
    let masked_arguments: Vec<OsString> =
        arguments.iter().map(|word| mask_argument(word)).collect();
    if masked_arguments == arguments {
        return Ok(arguments);
    }
    Err(execute_masked(&arguments, masked_arguments)?)
}

/// Returns only when it fails.
fn execute_masked(
    typed: &[OsString],
    masked_arguments: Vec<OsString>,
) -> anyhow::Result<anyhow::Error> {
    // Without MFD_CLOEXEC: the file is open in the program that is executed.
    let mut file = File::from(rustix::fs::memfd_create("arguments", MemfdFlags::empty())?);
    for argument in typed {
        file.write_all(argument.as_bytes())?;
        file.write_all(&[0])?;
    }
    file.rewind()?;
    let mut shown = masked_arguments.into_iter();
    // The name under which the program was called stays what `ps` shows.
    let name = shown.next().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    let error = Command::new(program)
        .arg0(name)
        .arg(format!("{DESCRIPTOR_PREFIX}{}", file.as_raw_fd()))
        .args(shown)
        .exec();
    Ok(anyhow::Error::new(error).context("hide the password in the arguments"))
}

fn read_from_descriptor(number: &str) -> anyhow::Result<Vec<OsString>> {
    let mut file = File::from(inherited::take_memory_file(number.parse()?)?);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let words = bytes.split(|byte| *byte == 0);
    let mut arguments: Vec<OsString> =
        words.map(|word| OsString::from_vec(word.to_vec())).collect();
    // Each ends with a zero, so that nothing follows the last one.
    arguments.pop();
    Ok(arguments)
}

/// An argument fit for `ps`; a setting is `key=value`, with `--set=` before it perhaps.
fn mask_argument(word: &OsStr) -> OsString {
    let Some(text) = word.to_str() else {
        return word.to_owned();
    };
    let (before, value) = match text.strip_prefix("--set=").unwrap_or(text).split_once('=') {
        Some((name, value)) if name.contains('.') && !name.contains(['/', ':', ' ']) => {
            (&text[..text.len() - value.len()], value)
        }
        _ => ("", text),
    };
    let name = before.trim_end_matches('=').trim_start_matches("--set=");
    let masked_value = mask_url_path(&mask_secrets(name, value));
    format!("{before}{masked_value}").into()
}

#[cfg(test)]
mod tests;
