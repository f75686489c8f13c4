//! The scenarios, one file each.

pub mod sql;
