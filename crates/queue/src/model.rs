//! The nouns of the queue: ids, leases, settings of queues and tasks.

use std::fmt;
use std::str::FromStr;

pub use crate::core::entry::TaskState;

/// Bits of an id that decide on the partition.
pub const SHARD_BITS: u32 = 12;

/// Bits of a task's number in its partition.
pub(crate) const NUMBER_BITS: u32 = 48;

/// The id of a task: a UUIDv7 (RFC 9562) of its creation in milliseconds, in whose random bits
/// stand 12 bits of *shard*, 14 bits that tell one log from another, and the task's 48-bit number
/// in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u128);

impl TaskId {
    /// From its parts; bits above the ones named are ignored.
    pub fn new(created_ms: u64, shard: u16, instance: u16, number: u64) -> Self {
        let time = u128::from(created_ms & ((1 << 48) - 1)) << 80;
        let shard = u128::from(shard & ((1 << SHARD_BITS) - 1)) << 64;
        let low = u64::from(instance & 0x3fff) << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1);
        Self(time | 0x7 << 76 | shard | 0b10 << 62 | u128::from(low))
    }

    /// When the task was made, in Unix milliseconds.
    pub fn created_ms(self) -> u64 {
        (self.0 >> 80) as u64
    }

    /// Shard, which determines its partition.
    pub fn shard(self) -> u16 {
        (self.0 >> 64) as u16 & ((1 << SHARD_BITS) - 1)
    }

    /// Distinguishes its log from others.
    pub fn instance(self) -> u16 {
        (self.0 >> NUMBER_BITS) as u16 & 0x3fff
    }

    /// Its number in its partition.
    pub fn number(self) -> u64 {
        self.0 as u64 & ((1 << NUMBER_BITS) - 1)
    }

    /// The 16 bytes, most significant first.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The id with these bytes, from [`TaskId::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The canonical 36 characters, without an allocation.
    pub fn text(self) -> [u8; 36] {
        /// Where the two digits of each byte begin; dashes are in between.
        const OFFSETS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
        let mut text = [b'-'; 36];
        for (byte, offset) in self.to_bytes().into_iter().zip(OFFSETS) {
            let digits = HEX[usize::from(byte)];
            text[offset..offset + 2].copy_from_slice(&digits);
        }
        text
    }
}

/// The two hexadecimal digits of each byte.
const HEX: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        hex[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    hex
};

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        f.write_str(std::str::from_utf8(&text).expect("hexadecimal digits are ASCII"))
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({self})")
    }
}

impl FromStr for TaskId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        egret_base::id::parse(text).map(|uuid| Self(uuid.as_u128()))
    }
}

/// Proof that a worker holds a task: 16 bytes that workers return as they received them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// The task's shard, which finds the partition.
    pub shard: u16,
    /// The task's number in it.
    pub number: u64,
    /// Differs for every lease ever given: the epoch of the partition above, a counter below.
    pub token: u64,
}

impl Lease {
    /// The bytes that a worker gets.
    pub fn to_bytes(self) -> [u8; 16] {
        let high = u64::from(self.shard) << NUMBER_BITS | self.number;
        (u128::from(high) << 64 | u128::from(self.token)).to_be_bytes()
    }

    /// Reads what a worker hands back; `None` when it is no lease.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bits = u128::from_be_bytes(bytes.try_into().ok()?);
        let high = (bits >> 64) as u64;
        let shard = (high >> NUMBER_BITS) as u16;
        (u32::from(shard) < 1 << SHARD_BITS).then_some(Self {
            shard,
            number: high & ((1 << NUMBER_BITS) - 1),
            token: bits as u64,
        })
    }

    /// Whether it is, or was, a lease of this task.
    pub fn belongs_to(self, id: TaskId) -> bool {
        self.shard == id.shard() && self.number == id.number()
    }
}

impl fmt::Display for Lease {
    /// [`Lease::to_bytes`] as 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.to_bytes()))
    }
}

impl FromStr for Lease {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parsed = is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        parsed.and_then(|bits| Self::from_bytes(&bits.to_be_bytes())).ok_or_else(|| {
            "it is not a lease: send it exactly as it was received with the task".to_owned()
        })
    }
}

/// How the delay grows from one failed attempt to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backoff {
    /// The same each time.
    Fixed,
    /// `base_ms` times the number of failed attempts.
    Linear,
    /// Doubled with each failed attempt.
    #[default]
    Exponential,
}

/// How a delay is randomised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Jitter {
    /// Delays are not changed at random.
    None,
    /// Anything from zero to the delay.
    #[default]
    Full,
    /// Half of the delay, and a random part of the other half.
    Equal,
}

/// How long a task waits after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// How the delay grows.
    pub backoff: Backoff,
    /// The first delay in milliseconds.
    pub base_ms: u64,
    /// The longest delay in milliseconds.
    pub max_ms: u64,
    /// How the delay is randomised.
    pub jitter: Jitter,
}

impl Default for RetryPolicy {
    /// 1 s, doubled, with full jitter, up to 10 minutes.
    fn default() -> Self {
        Self {
            backoff: Backoff::Exponential,
            base_ms: 1_000,
            max_ms: 600_000,
            jitter: Jitter::Full,
        }
    }
}

/// When tasks that have ended are deleted: whichever comes first; zero is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Milliseconds after their end.
    pub age_ms: u64,
    /// How many are kept in the queue.
    pub count: u64,
}

/// Defaults for the tasks of a queue, which a task's options override.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    /// Attempts before a task is dead.
    pub max_attempts: u16,
    /// How long it waits between them.
    pub retry: RetryPolicy,
    /// How long a lease lasts without a heartbeat.
    pub lease_ms: u64,
    /// The longest that an attempt may take; zero: any time.
    pub timeout_ms: u64,
    /// Tasks leased at a time; zero: any number.
    pub concurrency: u32,
    /// The same for one ordering key.
    pub key_concurrency: u32,
    /// Tasks handed out in a second; zero: any number.
    pub rate_per_second: f64,
    /// Tasks handed out at once after a pause; zero: a second's worth, at least one.
    pub rate_burst: u32,
    /// Which completed tasks are kept.
    pub completed: Retention,
    /// Which dead tasks are kept.
    pub dead: Retention,
    /// Which cancelled tasks are kept.
    pub cancelled: Retention,
    /// How long a unique key is remembered.
    pub unique_window_ms: u64,
    /// A task that has waited so long counts as one priority higher; zero: never.
    pub aging_ms: u64,
}

const DAY_MS: u64 = 86_400_000;

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            retry: RetryPolicy::default(),
            lease_ms: 30_000,
            timeout_ms: 0,
            concurrency: 0,
            key_concurrency: 1,
            rate_per_second: 0.0,
            rate_burst: 0,
            completed: Retention { age_ms: DAY_MS, count: 1_000_000 },
            dead: Retention { age_ms: 30 * DAY_MS, count: 1_000_000 },
            cancelled: Retention { age_ms: DAY_MS, count: 1_000_000 },
            unique_window_ms: DAY_MS,
            aging_ms: 60_000,
        }
    }
}

impl QueueSettings {
    /// How long tasks that ended in this state are kept; `None` for states that have not ended.
    pub fn retention(&self, state: TaskState) -> Option<Retention> {
        match state {
            TaskState::Completed => Some(self.completed),
            TaskState::Dead => Some(self.dead),
            TaskState::Cancelled => Some(self.cancelled),
            _ => None,
        }
    }
}

/// Options in which a task differs from its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaskOptions {
    /// Attempts before it is dead.
    pub max_attempts: Option<u16>,
    /// How long it waits between them.
    pub retry: Option<RetryPolicy>,
    /// The longest that an attempt may take, in milliseconds.
    pub timeout_ms: Option<u64>,
}

impl From<&TaskOptions> for TaskOptions {
    fn from(options: &TaskOptions) -> Self {
        *options
    }
}

/// How an attempt ended that did not complete its task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AttemptEnd {
    /// The worker reported a failure.
    #[default]
    Failed = 0,
    /// The worker asked for another attempt later.
    Nacked = 1,
    /// The worker postponed it.
    Snoozed = 2,
    /// The worker released it.
    Released = 3,
    /// No heartbeat came in time.
    LeaseExpired = 4,
    /// It took longer than its timeout.
    TimedOut = 5,
    /// The task was cancelled by a caller.
    Cancelled = 6,
}

impl AttemptEnd {
    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptEnd::Failed => "failed",
            AttemptEnd::Nacked => "nack",
            AttemptEnd::Snoozed => "snoozed",
            AttemptEnd::Released => "released",
            AttemptEnd::LeaseExpired => "lease_expired",
            AttemptEnd::TimedOut => "timed_out",
            AttemptEnd::Cancelled => "cancelled",
        }
    }

    /// The end with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        [
            AttemptEnd::Failed,
            AttemptEnd::Nacked,
            AttemptEnd::Snoozed,
            AttemptEnd::Released,
            AttemptEnd::LeaseExpired,
            AttemptEnd::TimedOut,
            AttemptEnd::Cancelled,
        ]
        .get(usize::from(number))
        .copied()
    }
}

/// Policy for missed ticks: Egret was down, stood still, could not read the schedule, or had no
/// room for more tasks (`queue.tasks_max`, or a full disk), and more than ten seconds have passed
/// since. A tick that is less late makes its task, and so does one for which Egret was only too
/// busy.
///
/// A tick whose tenant is at its own limit (`queue.tenant_tasks_max`) is not missed: it waits for
/// room, also over a restart, and stands for those that come meanwhile; with
/// [`MissedTickPolicy::All`] each of them, up to 1,000 until the schedule has caught up, makes a
/// task then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickPolicy {
    /// Missed ticks are skipped.
    #[default]
    Skip,
    /// One task for all of them: that of a tick that has just come, or one of its own.
    One,
    /// A task for each; of more than 1,000, which come at once, for the first 1,000.
    All,
}
