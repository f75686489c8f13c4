//! The few things Egret asks of Linux that no safe, well-kept crate offers: btrfs subvolume ioctls,
//! starting a child in its own session, confined or inside of a control group, waiting on a
//! descriptor, starting write-back, opening files without waiting, working below an open directory,
//! finding the socket in a directory of another user, finding where another user's process works,
//! and telling which paths only root and this user can change.
//!
//! This is the only crate of the workspace that holds `unsafe` code. Each use is a few lines with
//! the reason why it is sound; nothing here makes decisions.

pub mod cgroup;
pub mod confine;
pub mod directory;
pub mod extents;
pub mod inherited;
pub mod process;
pub mod readable;
pub mod regular_file;
pub mod session;
pub mod socket;
pub mod spawn;
pub mod subvolume;
#[cfg(test)]
mod test_support;
mod trial;
pub mod trust;
pub mod write_back;
