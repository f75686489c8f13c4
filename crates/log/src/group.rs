//! Group commit for users without a loop of their own: any number of threads and tasks add records;
//! those that have gathered are written by one call, synced once, and their callers are woken.
//!
//! A record costs its bytes and nothing else: it is encoded straight into the batch that is
//! written, and its [`Ticket`] is a number. Waiting is for a number to be passed, not for a
//! message. There are two generations at any time, the one being written and the one gathering, and
//! each is woken as a whole.

mod outcome;

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use egret_base::sync::lock;
use egret_base::{Limit, LimitExceeded};

use crate::{AppendResult, Batch, Log, LogError, Seq};
use outcome::Outcomes;

/// How long the writer waits before it asks again what became of a batch.
const RESOLVE_INTERVAL: Duration = Duration::from_millis(20);

/// How much may wait to be written.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    /// The most records that wait. Default: 65,536.
    pub waiting_records_max: u64,
    /// The most bytes that wait, headers included. Default: 16 MiB. Never more than one batch of
    /// the log can hold.
    pub waiting_bytes_max: u64,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self { waiting_records_max: 65_536, waiting_bytes_max: 16 << 20 }
    }
}

/// Sequence number of a record among all that were submitted to one committer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub struct Ticket(u64);

/// Shares one log among many callers that append. Dropping it writes the records that wait.
pub struct GroupCommitter<L: Log + 'static> {
    shared: Arc<CommitterState<L>>,
    writer: Option<JoinHandle<()>>,
}

struct CommitterState<L> {
    config: GroupConfig,
    open_generation: Mutex<OpenGeneration>,
    arrived: Condvar,
    generation_writer: Mutex<GenerationWriter<L>>,
    outcomes: Outcomes,
}

/// The generation that gathers.
struct OpenGeneration {
    batch: Batch,
    /// The number of the next record added.
    next: u64,
    is_parked: bool,
    /// Set when another thread has appended, so that the writer recomputes its sync deadline.
    is_woken: bool,
    is_closed: bool,
    /// Why nothing is taken any more.
    failure: Option<LogError>,
}

/// The log, and the generation that is written.
struct GenerationWriter<L> {
    log: L,
    batch: Batch,
}

impl<L: Log + 'static> GroupCommitter<L> {
    /// Takes over a log.
    ///
    /// # Errors
    /// [`LogError::Io`] when no thread can be started.
    pub fn start(log: L, mut config: GroupConfig) -> Result<Self, LogError> {
        config.waiting_bytes_max = config.waiting_bytes_max.min(log.batch_bytes_max() as u64);
        let shared = Arc::new(CommitterState {
            config,
            open_generation: Mutex::new(OpenGeneration {
                batch: Batch::new(),
                next: 0,
                is_parked: false,
                is_woken: false,
                is_closed: false,
                failure: None,
            }),
            arrived: Condvar::new(),
            outcomes: Outcomes::new(log.next_seq()),
            generation_writer: Mutex::new(GenerationWriter { log, batch: Batch::new() }),
        });
        let writer_state = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || writer_state.write_until_closed())
            .map_err(|error| LogError::Io {
                action: "start a thread for",
                file: "a group of appenders".to_owned(),
                source: Arc::new(error),
            })?;
        Ok(Self { shared, writer: Some(writer) })
    }

    /// Adds a record and answers at once. It is durable when [`GroupCommitter::wait`] says so.
    ///
    /// # Errors
    /// [`LogError::Busy`] at a limit; [`LogError::BatchTooLarge`]; what stopped the log.
    pub fn submit(&self, record: &[u8]) -> Result<Ticket, LogError> {
        let (ticket, generation) = self.shared.add_record(record)?;
        self.shared.wake_writer(generation);
        Ok(ticket)
    }

    /// Adds a record and waits until it is as durable as the log makes it. A caller that finds the
    /// log idle writes the gathered records itself, so that a single caller pays for no switch of
    /// threads.
    ///
    /// # Errors
    /// As [`GroupCommitter::submit`], and what the append failed with.
    pub fn append(&self, record: &[u8]) -> Result<Seq, LogError> {
        let (ticket, generation) = self.shared.add_record(record)?;
        let Ok(mut writer) = self.shared.generation_writer.try_lock() else {
            self.shared.wake_writer(generation);
            return self.wait(ticket);
        };
        drop(generation);
        self.shared.commit(&mut writer);
        let needs_sync = writer.log.sync_deadline().is_some();
        drop(writer);
        // Callers that arrived meanwhile relied on this thread; from here on the writer thread
        // serves them.
        let mut waiting = self.shared.lock_open_generation();
        waiting.is_woken |= needs_sync;
        if needs_sync || !waiting.batch.is_empty() {
            self.shared.wake_writer(waiting);
        }
        self.wait(ticket)
    }

    /// Blocks until the record is durable and answers its sequence number.
    ///
    /// # Errors
    /// What its append failed with.
    pub fn wait(&self, ticket: Ticket) -> Result<Seq, LogError> {
        self.shared.outcomes.wait(ticket.0)
    }

    /// Like [`GroupCommitter::wait`], if it is known by now.
    pub fn try_wait(&self, ticket: Ticket) -> Option<Result<Seq, LogError>> {
        self.shared.outcomes.get(ticket.0)
    }

    /// Does something with the log between two writes, such as reading or truncating it.
    pub fn with_log<R>(&self, work: impl FnOnce(&mut L) -> R) -> R {
        work(&mut self.shared.lock_writer().log)
    }
}

impl<L: Log + 'static> Drop for GroupCommitter<L> {
    fn drop(&mut self) {
        let mut generation = self.shared.lock_open_generation();
        generation.is_closed = true;
        self.shared.wake_writer(generation);
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the writer of a group of appenders panicked");
        }
    }
}

impl<L: Log + 'static> CommitterState<L> {
    fn add_record(
        &self,
        record: &[u8],
    ) -> Result<(Ticket, MutexGuard<'_, OpenGeneration>), LogError> {
        let mut generation = self.lock_open_generation();
        if let Some(failure) = &generation.failure {
            return Err(failure.clone());
        }
        let (records, bytes) =
            (generation.batch.len() + 1, generation.batch.frame_bytes_with(record.len()));
        if let Err(limit) = self.check_limits(records as u64, bytes as u64) {
            let is_empty = generation.batch.is_empty();
            // What would not fit an empty batch never fits.
            return Err(if is_empty {
                LogError::BatchTooLarge(limit)
            } else {
                LogError::Busy(limit)
            });
        }
        generation.batch.push(record);
        let ticket = Ticket(generation.next);
        generation.next += 1;
        Ok((ticket, generation))
    }

    fn check_limits(&self, records: u64, bytes: u64) -> Result<(), LimitExceeded> {
        Limit::new("waiting_records_max", self.config.waiting_records_max).check(records)?;
        Limit::new("waiting_bytes_max", self.config.waiting_bytes_max).check(bytes)
    }

    /// Wakes the writer if it sleeps; the system is not called otherwise.
    fn wake_writer(&self, mut generation: MutexGuard<'_, OpenGeneration>) {
        let was_parked = std::mem::take(&mut generation.is_parked);
        drop(generation);
        if was_parked {
            self.arrived.notify_one();
        }
    }

    fn write_until_closed(&self) {
        let mut deadline = None;
        while self.park_until_work(deadline) {
            let mut writer = self.lock_writer();
            self.commit(&mut writer);
            let sync_deadline = writer.log.sync_deadline();
            if sync_deadline.is_some_and(|due| due <= Instant::now())
                && let Err(error) = writer.log.sync()
            {
                self.lock_open_generation().failure = Some(error);
            }
            deadline = writer.log.sync_deadline();
        }
        let mut committer = self.lock_writer();
        if committer.log.sync_deadline().is_some()
            && let Err(error) = committer.log.sync()
        {
            tracing::error!(%error, "the last sync of a log failed");
        }
    }

    /// Sleeps until there is something to write or the deadline for a sync. False at the end.
    fn park_until_work(&self, deadline: Option<Instant>) -> bool {
        let mut generation = self.lock_open_generation();
        loop {
            if !generation.batch.is_empty() || std::mem::take(&mut generation.is_woken) {
                return true;
            }
            if generation.is_closed {
                return false;
            }
            generation.is_parked = true;
            generation = match deadline {
                None => self.arrived.wait(generation).expect("no holder of this lock can panic"),
                Some(deadline) => {
                    let remaining = deadline.saturating_duration_since(Instant::now());
                    if remaining.is_zero() {
                        generation.is_parked = false;
                        return true;
                    }
                    let result = self.arrived.wait_timeout(generation, remaining);
                    result.expect("no holder of this lock can panic").0
                }
            };
            generation.is_parked = false;
        }
    }

    /// Writes the gathered records and wakes the callers that wait for them.
    fn commit(&self, writer: &mut GenerationWriter<L>) {
        let GenerationWriter { log, batch } = writer;
        let mut generation = self.lock_open_generation();
        std::mem::swap(&mut generation.batch, batch);
        let end = generation.next;
        drop(generation);
        if batch.is_empty() {
            return;
        }
        self.outcomes.begin_generation(end);
        let expected = log.next_seq();
        let mut result = log.append(batch, expected);
        while matches!(result, Ok(AppendResult::Unknown)) {
            std::thread::park_timeout(RESOLVE_INTERVAL);
            result = log.resolve(batch, expected);
        }
        let failure = match result {
            Ok(AppendResult::Committed(_)) => return self.outcomes.finish_generation(None),
            Ok(AppendResult::Fenced | AppendResult::Unknown) => LogError::Fenced,
            Err(error) => error,
        };
        batch.clear();
        if !matches!(failure, LogError::Full { .. }) {
            self.lock_open_generation().failure = Some(failure.clone());
        }
        self.outcomes.finish_generation(Some(failure));
    }

    fn lock_open_generation(&self) -> MutexGuard<'_, OpenGeneration> {
        lock(&self.open_generation)
    }

    fn lock_writer(&self) -> MutexGuard<'_, GenerationWriter<L>> {
        lock(&self.generation_writer)
    }
}

#[cfg(test)]
mod tests;
