//! The names of the files in a directory of blocks.
//!
//! | name | what |
//! |---|---|
//! | `block-<id>` | a block |
//! | `tombstones-<id>` | what was deleted of it |
//! | `replace-<id>` | blocks that are to take the place of others: see [`super::replacement`] |
//! | `….new` | any of them that is not whole yet, or whose time has not come |
//! | `quarantine-…` | any of them that cannot be relied on |

use crate::core::block::BlockId;

const BLOCK: &str = "block-";
const TOMBSTONES: &str = "tombstones-";
const REPLACEMENT: &str = "replace-";
const NEW: &str = ".new";
pub(crate) const QUARANTINE: &str = "quarantine-";

/// What a file is by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
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

/// What it is called until it is whole.
pub(crate) fn new(name: &str) -> String {
    format!("{name}{NEW}")
}

pub(crate) fn new_block(id: BlockId) -> String {
    new(&block(id))
}

/// What it is called when it cannot be relied on.
pub(crate) fn quarantined(name: &str) -> String {
    format!("{QUARANTINE}{name}")
}

/// What a file is; `None` when it is nothing of ours.
pub(crate) fn parse(name: &str) -> Option<Named> {
    if let Some(rest) = name.strip_prefix(QUARANTINE) {
        return Some(Named::Quarantined(id_of(rest)?));
    }
    if let Some(rest) = name.strip_suffix(NEW) {
        return Some(Named::New(id_of(rest)?));
    }
    let id = id_of(name)?;
    Some(match name {
        _ if name.starts_with(BLOCK) => Named::Block(id),
        _ if name.starts_with(TOMBSTONES) => Named::Tombstones(id),
        _ => Named::Replacement(id),
    })
}

fn id_of(name: &str) -> Option<BlockId> {
    let digits = [BLOCK, TOMBSTONES, REPLACEMENT]
        .iter()
        .find_map(|kind| name.strip_prefix(kind))?;
    let is_id = digits.len() == 16
        && digits
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_id.then(|| u64::from_str_radix(digits, 16).ok().map(BlockId))?
}
