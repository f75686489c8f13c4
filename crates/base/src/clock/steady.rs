//! The clock of a running Egret: the model of [`super::model`] over the machine's clocks, and its
//! record in the data directory.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::model::{ClockModel, ClockPolicy, ClockReading, ClockRecord, ClockState};
use super::{Clock, SystemClock, Timestamp, read_both_clocks};
use crate::durable;
use crate::sync::lock;

/// Names one boot of the machine, and thereby what its elapsed clock counts from.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The first line of a record; the number is the version of its format.
const HEADING: &str = "egret clock 1";

/// Mode of the record's file.
const RECORD_MODE: u32 = 0o600;

/// Status of the clock, for `/v1/clock`, `/readyz` and the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStatus {
    /// The time that Egret goes by.
    pub accepted: Timestamp,
    /// The machine's wall clock.
    pub wall: Timestamp,
    /// By how many microseconds the wall clock is ahead; negative: behind.
    pub offset_us: i64,
    /// Whether accepted time follows the wall clock.
    pub state: ClockState,
}

/// Result of a release of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseOutcome {
    /// By how many microseconds accepted time has moved.
    pub moved_us: i64,
    /// The status after the release.
    pub status: ClockStatus,
}

/// The clock of a running Egret. Reads the machine's clocks, and keeps the state of the clock model
/// in a file of the data directory.
#[derive(Debug)]
pub struct SteadyClock {
    model: Mutex<ClockModel>,
    /// The elapsed clock when the program began.
    started_at: Duration,
    boot: String,
    path: PathBuf,
}

impl SteadyClock {
    /// Goes on from the record in this file, where there is one. It always opens: a record that
    /// cannot be read or written is among the problems, and stops nothing. A damaged one is moved
    /// aside.
    pub fn open(path: &Path, policy: ClockPolicy) -> (Self, Vec<io::Error>) {
        let mut problems = Vec::new();
        let boot = boot_id().unwrap_or_else(|error| {
            problems.push(error);
            String::new()
        });
        let record = read_record(path).unwrap_or_else(|error| {
            problems.push(error);
            None
        });
        let reading = read_clocks();
        let model = match record {
            Some(record) => ClockModel::resume(&record, &boot, reading, policy),
            None => ClockModel::begin(reading, policy),
        };
        let clock = Self {
            model: Mutex::new(model),
            started_at: reading.elapsed,
            boot,
            path: path.to_owned(),
        };
        problems.extend(clock.save().err());
        (clock, problems)
    }

    fn model(&self) -> MutexGuard<'_, ClockModel> {
        // The model is whole after each of its operations.
        lock(&self.model)
    }

    /// The status of the clock at this moment.
    pub fn status(&self) -> ClockStatus {
        let mut model = self.model();
        let reading = read_clocks();
        let accepted = model.observe(reading);
        status(&model, accepted, reading)
    }

    /// Accepts the wall clock as it is, and makes that durable.
    ///
    /// # Errors
    /// What the system says when the record cannot be written: the release holds until the next
    /// start then.
    pub fn release(&self) -> io::Result<ReleaseOutcome> {
        let outcome = {
            let mut model = self.model();
            let reading = read_clocks();
            let moved_us = model.release(reading);
            ReleaseOutcome { moved_us, status: status(&model, reading.wall, reading) }
        };
        self.save()?;
        Ok(outcome)
    }

    /// Writes the record from which the next run goes on.
    pub fn save(&self) -> io::Result<()> {
        let record = {
            let mut model = self.model();
            model.observe(read_clocks());
            model.record(&self.boot)
        };
        durable::write_file(&self.path, render(&record).as_bytes(), RECORD_MODE)
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        // Read under the lock: a reading that comes late would look like a wall clock set back.
        let mut model = self.model();
        model.observe(read_clocks())
    }

    fn monotonic(&self) -> Duration {
        elapsed().saturating_sub(self.started_at)
    }

    fn now_and_monotonic(&self) -> (Timestamp, Duration) {
        let mut model = self.model();
        let reading = read_clocks();
        let monotonic = reading.elapsed.saturating_sub(self.started_at);
        (model.observe(reading), monotonic)
    }
}

fn status(model: &ClockModel, accepted: Timestamp, reading: ClockReading) -> ClockStatus {
    ClockStatus { accepted, wall: reading.wall, offset_us: model.offset_us(), state: model.state() }
}

/// The elapsed clock: since the boot of the machine, suspension included.
fn elapsed() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

fn read_clocks() -> ClockReading {
    let (wall, elapsed) = read_both_clocks(|| SystemClock.now(), elapsed);
    ClockReading { wall, elapsed }
}

fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

fn render(record: &ClockRecord) -> String {
    format!(
        "{HEADING}\naccepted_us {}\nelapsed_us {}\nboot {}\n",
        record.accepted.as_micros(),
        record.elapsed.as_micros(),
        record.boot
    )
}

fn read_record(path: &Path) -> io::Result<Option<ClockRecord>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    match parse(&text) {
        Some(record) => Ok(Some(record)),
        None => Err(set_aside(path)),
    }
}

/// Keeps a damaged record for an operator to look at; the wall clock is believed without it.
fn set_aside(path: &Path) -> io::Error {
    let mut aside_path = path.as_os_str().to_owned();
    aside_path.push(".damaged");
    let outcome = match std::fs::rename(path, &aside_path) {
        Ok(()) => format!("it is kept as {}", Path::new(&aside_path).display()),
        Err(error) => format!("it cannot be moved aside: {error}"),
    };
    let reason = format!("{} is damaged, {outcome}", path.display());
    io::Error::new(ErrorKind::InvalidData, reason)
}

fn parse(text: &str) -> Option<ClockRecord> {
    let mut lines = text.lines();
    if lines.next()? != HEADING {
        return None;
    }
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    Some(ClockRecord {
        accepted: Timestamp::from_micros(value("accepted_us")?.parse().ok()?),
        elapsed: Duration::from_micros(value("elapsed_us")?.parse().ok()?),
        boot: value("boot")?.to_owned(),
    })
}

#[cfg(test)]
mod tests;
