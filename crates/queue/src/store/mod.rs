//! The only place that touches the disk, and the formats of what is there.

pub mod attachment;
pub mod chain;
pub mod content;
pub mod outbox;
pub mod record;
pub(crate) mod schedule;
mod settings;
pub mod snapshot;
