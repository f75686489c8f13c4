//! Background tasks of the engine: ownership, group commit, reads, the change feed and retention.

pub(crate) mod batched_reader;
pub mod catalogue;
pub(crate) mod commit;
pub(crate) mod feed_tailer;
pub mod ids;
pub mod ownership;
pub(crate) mod query_sessions;
pub(crate) mod query_values;
pub mod rebuild;
pub(crate) mod session;
pub(crate) mod subscription_dispatch;
pub(crate) mod sweeper;
