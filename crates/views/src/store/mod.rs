//! The only place that speaks SQL to a database.

pub mod build;
pub mod create;
pub mod describe;
pub mod install;
pub mod refresh;
pub mod registry;
