//! Reading ahead: the parts of a clone's files that first statements will ask for, brought into
//! memory by the kernel before they do.
//!
//! A clone shares its blocks with the template but not its place in the page cache, so each branch
//! reads its own pages, one wait after the other.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Advice, OFlags};

/// Files up to this size are read whole.
const WHOLE_BYTES_MAX: u64 = 128 << 10;

/// The bytes at the start of a larger file that are read: an index has its root there.
const HEAD_BYTES: u64 = 32 << 10;

/// The bytes at the end of a larger file that are read: new rows and the highest keys go there.
const TAIL_BYTES: u64 = 32 << 10;

/// The most ranges of one template.
const RANGES_MAX: usize = 512;

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Relative to the data directory.
    file: String,
    offset: u64,
    bytes: u64,
}

/// The ranges worth reading of these relations, by what the template has.
pub(crate) fn find_ranges(template: &Path, relations: &[String]) -> Vec<Range> {
    let mut found = Vec::new();
    for relation in relations.iter().filter(|relation| is_relation(relation)) {
        for fork in ["", "_fsm", "_vm"] {
            let file = format!("{relation}{fork}");
            let Ok(metadata) = fs::symlink_metadata(template.join(&file)) else {
                continue;
            };
            let size = metadata.len();
            let parts = if size <= WHOLE_BYTES_MAX {
                vec![(0, size)]
            } else {
                vec![(0, HEAD_BYTES), (size - TAIL_BYTES, TAIL_BYTES)]
            };
            found.extend(
                parts.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(offset, bytes)| Range {
                    file: file.clone(),
                    offset,
                    bytes,
                }),
            );
        }
    }
    found.truncate(RANGES_MAX);
    found
}

/// `base/<database>/<file>` and nothing else: the text comes out of a database.
fn is_relation(path: &str) -> bool {
    let is_number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut parts = path.split('/');
    parts.next() == Some("base")
        && is_number(parts.next())
        && is_number(parts.next())
        && parts.next().is_none()
}

/// Asks the kernel to read the ranges of a clone, which it does in the background.
pub(crate) fn read_ahead(data: &Path, ranges: &[Range]) {
    let mut open_file: Option<(&str, File)> = None;
    for range in ranges {
        if open_file.as_ref().is_none_or(|(file, _)| *file != range.file) {
            // Neither a link nor a pipe leads anywhere.
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let opened = File::options()
                .read(true)
                .custom_flags(flags.bits().cast_signed())
                .open(data.join(&range.file));
            open_file = opened.ok().map(|opened| (range.file.as_str(), opened));
        }
        if let Some((_, file)) = &open_file {
            let length = std::num::NonZeroU64::new(range.bytes);
            // A file system that cannot read ahead does not have to.
            let _ = rustix::fs::fadvise(file, range.offset, length, Advice::WillNeed);
        }
    }
}

#[cfg(test)]
mod tests;
