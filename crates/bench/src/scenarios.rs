//! The scenarios, one file each.

pub mod branches;
pub mod documents;
pub mod log;
pub mod queue;
pub mod series;
pub mod sql;
pub mod views;
