//! Wall-clock time as a value, and the clock as an argument.
//!
//! Cores never read a clock; their caller holds a [`Clock`] and passes the time in. In a running
//! Egret that is a [`SteadyClock`], which follows the wall clock by the rules of [`model`]: every
//! engine takes its time from there, and none reads the wall clock itself.

pub mod model;
mod steady;

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use steady::{ClockStatus, ReleaseOutcome, SteadyClock};

/// A moment in UTC, in microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since the Unix epoch, rounded down; 0 for moments before the epoch.
    pub fn as_millis_unsigned(self) -> u64 {
        u64::try_from(self.0.div_euclid(1_000)).unwrap_or(0)
    }

    /// The moment `duration` later, saturating at the end of time.
    pub fn plus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with microseconds, e.g. `2026-11-21T08:00:00.000000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(moment) => write!(f, "{moment:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<jiff::Timestamp>()
            .map(|moment| Self(moment.as_microsecond()))
            .map_err(|error| format!("`{text}` is not an RFC 3339 time: {error}"))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Source of wall-clock and monotonic time.
pub trait Clock: Send + Sync + 'static {
    /// The time now. That of a [`SteadyClock`] does not jump and does not go back, unless an
    /// operator releases the clock.
    fn now(&self) -> Timestamp;

    /// A duration that only grows: it is never set and never goes back. Its origin has no meaning,
    /// only differences do.
    fn monotonic(&self) -> Duration;

    /// [`Clock::now`] and [`Clock::monotonic`], read at one moment: a pause of the thread between
    /// two readings would look like a jump of the wall clock.
    fn now_and_monotonic(&self) -> (Timestamp, Duration);
}

/// Two clocks are read at one moment if reading both takes no longer than this.
const READING_SKEW_MAX: Duration = Duration::from_millis(1);

/// Attempts at a reading of one moment. A thread that is interrupted in each of them goes by the
/// last.
const READING_ATTEMPTS_MAX: usize = 8;

/// Reads the time and what has elapsed at one moment.
fn read_both_clocks(
    now: impl Fn() -> Timestamp,
    elapsed: impl Fn() -> Duration,
) -> (Timestamp, Duration) {
    let mut before = elapsed();
    let mut attempts = 1;
    loop {
        let (time, after) = (now(), elapsed());
        if after.saturating_sub(before) <= READING_SKEW_MAX || attempts >= READING_ATTEMPTS_MAX {
            return (time, after);
        }
        before = after;
        attempts += 1;
    }
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        STARTED.elapsed()
    }

    fn now_and_monotonic(&self) -> (Timestamp, Duration) {
        read_both_clocks(|| self.now(), || self.monotonic())
    }
}

/// A clock that moves only when told to; for tests and simulators.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_micros: AtomicI64,
    monotonic_micros: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `start` until it is advanced.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { wall_micros: AtomicI64::new(start.0), monotonic_micros: AtomicU64::new(0) }
    }

    /// Moves the clock ahead by this duration.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.wall_micros.fetch_add(micros, Ordering::SeqCst);
        self.monotonic_micros.fetch_add(micros.unsigned_abs(), Ordering::SeqCst);
    }

    /// Sets the wall clock forward, as a time server may; no time passes.
    pub fn set_forward(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.wall_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Sets the wall clock back, as operators and time servers do; no time passes.
    pub fn set_back(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.wall_micros.fetch_sub(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.wall_micros.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic_micros.load(Ordering::SeqCst))
    }

    fn now_and_monotonic(&self) -> (Timestamp, Duration) {
        (self.now(), self.monotonic())
    }
}

#[cfg(test)]
mod tests;
