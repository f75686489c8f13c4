//! Queue: durable tasks, handed out at least once, with an outcome to wait for.
//!
//! [`Queues`] is the engine's handle. Tasks are spread over *partitions*, each a log and a state
//! machine on a thread of its own.

mod api;
pub mod config;
pub mod core;
pub mod error;
mod metrics;
pub mod model;
pub mod repair;
mod store;
mod worker;

pub use api::attachments::{Attachment, Manifest, Opened, Upload};
pub use api::callbacks::{CallbackPage, CallbackView};
pub use api::chain::{ChainRefusal, ChainTask};
pub use api::claim::OwnedTask;
pub use api::in_flight::{InFlightKind, InFlightPermit, StreamInFlight, TenantInFlight};
pub use api::outbox::{Outbox, OutboxSteps, OutboxView, OutboxViews};
pub use api::produce::{BATCH_MAX, Enqueues, Format, NewTask, PRIORITY_DEFAULT, check_batch};
pub use api::queues::{QueueView, SettingsChange};
pub use api::schedules::{Missed, NewSchedule, ScheduleView};
pub use api::sink::{Assigned, Enqueued, ProduceSink, ReportSink, WorkSink};
pub use api::submit::QueueFilter;
pub use api::summary::Summary;
pub use api::tasks::{AttemptView, Detail, TaskPage, TaskView};
pub use api::watch::{ChangeSink, TaskChange};
pub use api::work::{CREDITS_MAX, Defer, Reports, Said, WorkSpec, Worker};
pub use api::{Options, QueueHandle, Queues};
pub use config::QueueConfig;
pub use error::QueueError;
pub use store::content::Content;

/// Bounds of what the engine takes, for those who publish them.
pub mod limits {
    pub use crate::api::name::NAME_BYTES_MAX;
    pub use crate::api::produce::{ATTEMPTS_MAX, BATCH_MAX, LONG_MS, MANY_MAX, TEXT_BYTES_MAX};
    pub use crate::api::queues::RATE_PER_SECOND;
    pub use crate::api::work::LEASE_MS;
    pub use crate::core::lanes::PRIORITIES;
    pub use crate::store::attachment::NAME_BYTES_MAX as ATTACHMENT_NAME_BYTES_MAX;
}

/// Formats on disk, for tests that look at every byte of them.
#[doc(hidden)]
pub mod testing {
    pub use crate::store::{attachment, chain, content, record, snapshot};
    pub use crate::worker::partition::driven::{Driven, DrivenWorker, end_by_a_panic};
}
