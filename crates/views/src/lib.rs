//! Views: results of queries, kept fresh.

pub mod config;
pub mod core;
pub mod error;
pub mod model;
mod store;

pub use config::ViewsConfig;
pub use error::ViewsError;

/// The parts by themselves, for tests.
#[doc(hidden)]
pub mod testing {
    pub use crate::store::create::create;
    pub use crate::store::install::install;
    pub use crate::store::refresh::{Reached, Refreshable, Refreshed};
}
