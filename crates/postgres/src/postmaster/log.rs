//! The end of a server's log, which says why it did not start.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What stands for the lines of a log that cannot be read.
const NO_LOG: &str = "it wrote no log";

/// The last `count` lines of a file, joined by `; `. A link is not followed: the directory may be
/// another user's.
pub(crate) fn last_lines(path: &Path, count: usize) -> String {
    let mut options = File::options();
    let opened = options.read(true).custom_flags(crate::cluster::NO_FOLLOW).open(path);
    match opened {
        Ok(file) => last_lines_of(&file, count),
        Err(_) => NO_LOG.to_owned(),
    }
}

/// The last `count` lines of an open file, joined by `; `. Of a long one only the end is read.
pub(super) fn last_lines_of(mut file: &File, count: usize) -> String {
    const END_BYTES: u64 = 16 << 10;
    let mut read_end = || -> std::io::Result<Vec<u8>> {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(END_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(END_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let Ok(bytes) = read_end() else {
        return NO_LOG.to_owned();
    };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "its log is empty, as on a full disk".to_owned();
    }
    lines[lines.len().saturating_sub(count)..].join("; ")
}
