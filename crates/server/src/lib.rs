//! The doors' house.

pub mod config;
pub mod error;
pub mod metrics;
pub mod problem;
pub mod tokens;
