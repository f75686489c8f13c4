//! The load harness: every number that Egret publishes, and what users measure on their own systems.
//!
//! It reaches a system only through public doors (HTTP, gRPC, the PostgreSQL wire), like a user's
//! program. A run ends as one [`result::ResultFile`].

pub mod compare;
pub mod quantity;
pub mod result;
#[cfg(test)]
pub(crate) mod sample;
pub mod terminal;
