//! State of one partition: everything about its tasks except payloads and results, which are read
//! from the log.
//!
//! `machine` has the state and the commands that change it. Beside it are its parts: `rows` and
//! `index` (what it keeps, and how it is found), `transitions` (from state to state), `lease`
//! (handing out and reports), `time` (timers and retention), `step` (shifts of the time), `admin`
//! (what operators request), `bytes` (sizes of records), `shared` (records that several tasks refer
//! to), `tenants` and `tenant_load` (loads by tenant), `chain` and `message` (tasks that wait for
//! others), `schedule` and `ticks`, and `queries`.

mod admin;
mod allocation_counts;
mod bytes;
mod chain;
mod index;
mod lease;
mod machine;
mod message;
mod past_attempts;
mod queries;
mod ready_position;
mod rows;
mod schedule;
mod shared;
mod shared_record;
mod snapshot;
mod step;
mod tenant_load;
mod tenants;
mod ticks;
mod time;
mod transitions;

pub use admin::PurgeResult;
#[doc(hidden)]
pub use allocation_counts::AllocationCounts;
pub use chain::DEPENDENTS_MAX;
pub use lease::{ClaimedTask, LeaseStatus};
pub use machine::State;
pub use message::{Message, MessageKind, tenant_mark};
pub use queries::{SlotPage, StateCounts};
pub use rows::{
    EndedTask, EnqueueOutcome, LostLease, PastAttempt, Queue, QueueTable, StateChange, StateEvents,
    TaskRef, Unique,
};
pub use schedule::{CALLBACK_QUEUE, NEVER_MS, Schedule, ScheduleKey, callback_key};
pub use shared_record::{RecordOwner, SharedRecord};
pub use snapshot::StateSnapshot;
pub use tenants::{TaskLoad, Tenants};

#[cfg(test)]
mod tests;
