//! Documents: JSON whose references never dangle.

pub mod core;
pub mod error;
pub mod model;

pub use error::DocumentsError;
