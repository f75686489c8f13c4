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

pub use api::attachments::{Attachment, AttachmentFile, Upload};
pub use api::callbacks::{CallbackPage, CallbackView};
pub use api::claim::OwnedTask;
pub use api::outbox::{OutboxView, OutboxViews};
pub use api::queues::QueueView;
pub use api::schedules::{NewSchedule, ScheduleView};
pub use api::summary::Summary;
pub use api::tasks::TaskPage;
pub use config::QueueConfig;
pub use core::command::Defer;
pub use core::lanes::PRIORITY_DEFAULT;
pub use egret_log::DurabilityMode;
pub use error::QueueError;
pub use model::MissedTickPolicy;
pub use store::attachment::Manifest;
pub use store::content::Content;
pub use store::content::Format;
pub use worker::chain::{ChainRefusal, ChainTask};
pub use worker::enqueues::Enqueues;
pub use worker::in_flight::{InFlightKind, InFlightPermit, StreamInFlight, TenantInFlight};
pub use worker::new_task::{BATCH_MAX, NewTask, check_batch};
pub use worker::outbox::handle::{Outbox, OutboxSteps};
pub use worker::queue_handle::QueueHandle;
pub use worker::queues::{Options, Queues};
pub use worker::reports::Reports;
pub use worker::session::CREDITS_MAX;
pub use worker::session::WorkSpec;
pub use worker::settings_change::SettingsChange;
pub use worker::sinks::{ChangeSink, TaskChange};
pub use worker::sinks::{EnqueueReceipt, ProduceSink, ReportSink, TaskAssignment, WorkSink};
pub use worker::submission::QueueFilter;
pub use worker::submission::ReportKind;
pub use worker::task_view::Detail;
pub use worker::task_view::{AttemptView, TaskView};
pub use worker::worker_handle::Worker;

/// Limits of the engine's inputs, for documentation and validation.
pub mod limits {
    pub use crate::core::lanes::PRIORITY_COUNT;
    pub use crate::store::attachment::NAME_BYTES_MAX as ATTACHMENT_NAME_BYTES_MAX;
    pub use crate::worker::name::NAME_BYTES_MAX;
    pub use crate::worker::new_task::{
        ATTEMPTS_MAX, BATCH_MAX, DURATION_MAX_MS, LIST_LEN_MAX, TEXT_BYTES_MAX,
    };
    pub use crate::worker::reports::REPORT_TEXT_BYTES_MAX;
    pub use crate::worker::session::LEASE_MS;
    pub use crate::worker::settings_change::RATE_PER_SECOND;
}

/// Formats on disk, for tests that look at every byte of them.
#[doc(hidden)]
pub mod testing {
    pub use crate::store::{attachment, chain, content, record, snapshot};
    pub use crate::worker::partition::driven::{DrivenPartition, DrivenWorker, panic_in_turn};
}
