//! Views: results of queries, kept fresh.

pub mod core;
pub mod error;
mod store;

pub use error::ViewsError;

/// The parts by themselves, for tests.
#[doc(hidden)]
pub mod testing {
    pub use crate::store::create::create;
    pub use crate::store::install::install;
    pub use crate::store::refresh::{Reached, Refreshable, Refreshed};
}
