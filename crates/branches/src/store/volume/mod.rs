//! Where copies are made: one trait, three drivers.
//!
//! `btrfs` snapshots a subvolume in one atomic step whatever its size; `reflink` clones every file
//! of a stopped server by sharing its blocks; `copy` copies every byte and works everywhere.

mod btrfs;
mod disk_use;
mod driver;
pub mod image;
mod mounted;
mod open;
pub(crate) mod relocation;
mod remove;
mod selection;
pub mod tenant;
pub mod tree;
mod walk;

pub(crate) use disk_use::{DiskUse, disk_use, find_uncounted};
pub use driver::{Driver, Volume};
pub use mounted::{MountedVolume, Space};
pub use open::{PASSWORD_FILE, open};
pub(crate) use remove::remove_tree;
pub(crate) use selection::new_volume;

#[cfg(test)]
mod tests;
