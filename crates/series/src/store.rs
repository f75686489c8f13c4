//! The only place that touches disk or SQL.

pub mod files;
pub mod statistics;
