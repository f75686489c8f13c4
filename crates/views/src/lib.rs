//! Views: results of queries, kept fresh.

pub mod core;
pub mod error;
mod store;

pub use error::ViewsError;
