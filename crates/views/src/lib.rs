//! Views: results of queries, kept fresh.

pub mod core;
