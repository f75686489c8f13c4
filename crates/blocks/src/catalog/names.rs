//! The names of the files in a directory of blocks.
//!
//! | name | what |
//! |---|---|
//! | `block-<id>` | a block |
//! | `tombstones-<id>` | what was deleted of it |
//! | `replace-<id>` | blocks that are to take the place of others: see [`super::replacement`] |
//! | `….new` | any of them that is not whole yet, or whose time has not come |
//! | `quarantine-…` | any of them that cannot be relied on |

use crate::core::BlockId;

const BLOCK: &str = "block-";
const TOMBSTONES: &str = "tombstones-";
const REPLACEMENT: &str = "replace-";
const NEW: &str = ".new";
/// Prefix of the names of quarantined files.
pub const QUARANTINE: &str = "quarantine-";

/// Kind of a file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Block(BlockId),
    Tombstones(BlockId),
    Replacement(BlockId),
    New(BlockId),
    Quarantined(BlockId),
}

pub(crate) fn block(id: BlockId) -> String {
    format!("{BLOCK}{id}")
}

pub(crate) fn tombstones(id: BlockId) -> String {
    format!("{TOMBSTONES}{id}")
}

pub(crate) fn replacement(id: BlockId) -> String {
    format!("{REPLACEMENT}{id}")
}

/// Name of a file until it is complete.
pub(crate) fn with_new_suffix(name: &str) -> String {
    format!("{name}{NEW}")
}

pub(crate) fn new_block(id: BlockId) -> String {
    with_new_suffix(&block(id))
}

/// Name of a quarantined file.
pub(crate) fn with_quarantine_prefix(name: &str) -> String {
    format!("{QUARANTINE}{name}")
}

/// Kind of a file; `None` if it does not belong to the catalog.
pub(crate) fn parse(name: &str) -> Option<FileKind> {
    if let Some(rest) = name.strip_prefix(QUARANTINE) {
        return Some(FileKind::Quarantined(parse_id(rest)?));
    }
    if let Some(rest) = name.strip_suffix(NEW) {
        return Some(FileKind::New(parse_id(rest)?));
    }
    let id = parse_id(name)?;
    Some(match name {
        _ if name.starts_with(BLOCK) => FileKind::Block(id),
        _ if name.starts_with(TOMBSTONES) => FileKind::Tombstones(id),
        _ => FileKind::Replacement(id),
    })
}

fn parse_id(name: &str) -> Option<BlockId> {
    let digits =
        [BLOCK, TOMBSTONES, REPLACEMENT].iter().find_map(|kind| name.strip_prefix(kind))?;
    let is_id = digits.len() == 16
        && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_id.then(|| u64::from_str_radix(digits, 16).ok().map(BlockId))?
}
