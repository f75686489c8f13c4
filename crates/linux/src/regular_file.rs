//! Reading files at paths that others may have a say in, without waiting: opening a pipe without a
//! writer would never end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// A pipe is opened without a writer, and a terminal does not become the process's.
const NONBLOCKING_FLAGS: i32 = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits().cast_signed();

/// Opens a regular file for reading.
///
/// # Errors
/// `InvalidInput` for what is none, such as a pipe, a device or a directory, and what the system
/// says.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCKING_FLAGS).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}

/// What a regular file holds.
///
/// # Errors
/// As [`open`], and what the system says.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text that a regular file holds.
///
/// # Errors
/// As [`open`], `InvalidData` when it is not UTF-8, and what the system says.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
