//! The operations of the engine, which the frontends call.

pub mod attachments;
pub mod callbacks;
pub mod claim;
pub mod outbox;
pub mod queues;
pub mod schedules;
pub mod summary;
mod sweep;
pub mod tasks;
pub mod watch;
pub mod work;
