//! Documents: JSON whose references never dangle.

pub mod api;
pub mod config;
pub mod core;
pub mod error;
mod metrics;
pub mod model;
mod store;
mod worker;

pub use api::{Caller, Documents, Options};
pub use config::DocumentsConfig;
pub use error::DocumentsError;
pub use store::collections::count as documents_in;
pub use store::history::Version;
pub use store::read::StoredDocument;
pub use worker::ownership::OwnershipState;
