//! The engine's operations, which the frontends call.
//!
//! Every operation that touches a branch's files or postmaster holds that branch's slot, so that
//! they follow one another; reading does not.

mod bounded;
pub mod change;
pub mod create;
mod memory;
pub mod pool;
mod pool_fill;
mod postmaster;
mod probe;
mod promised_room;
pub(crate) mod recover;
mod reset;
mod role_passwords;
mod room;
pub mod session;
pub mod template;
mod tenant_disk;
pub mod verify;
pub mod view;
mod volume;
pub(crate) mod warm_sessions;
mod warm_up;
