//! The only place that speaks SQL to a database.

pub mod describe;
