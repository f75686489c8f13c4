//! Foundations that every layer of Egret shares: ids, clock, entropy, the error contract, named
//! limits, settings with provenance, the number of parts that data is split into, the encoding of
//! records, files that survive a crash, lasting faults, cron expressions, and the start/ready/stop
//! contract.
//!
//! Nothing here knows tokio, SQL, HTTP or any engine.

pub mod clock;
pub mod codec;
pub mod condition;
pub mod durable;
pub mod entropy;
pub mod error;
pub mod id;
pub mod lifecycle;
pub mod limit;
pub mod parts;
pub mod rhythm;
pub mod settings;
pub mod signature;
pub mod sync;
pub mod task;
mod value;

pub use clock::{Clock, ManualClock, SteadyClock, SystemClock, Timestamp};
pub use condition::Condition;
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
pub use error::{CodedError, Kind};
pub use limit::{Limit, LimitExceeded, TenantShare, TenantUsage, zero_on_underflow};
pub use rhythm::{CronSchedule, CronScheduleError};
pub use signature::{SIGNATURE_HEADER, Signer};
pub use task::{TaskReceipt, TaskRejection, TaskRequest, TaskSink};
