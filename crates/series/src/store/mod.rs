//! What touches a disk.

pub mod block;
pub mod catalog;
pub mod checkpoint;
