//! Blocks: immutable files of sealed samples, and the catalog of those in a directory. See the
//! crate's `README.md` for the map.

pub mod block;
pub mod catalog;
pub mod core;
pub mod metrics;
