//! Group commit for users without a loop of their own: any number of threads and tasks add records;
//! those that have gathered are written by one call, synced once, and their callers are woken.
//!
//! A record costs its bytes and nothing else: it is encoded straight into the batch that is
//! written, and its [`Ticket`] is a number. Waiting is for a number to be passed, not for a
//! message. There are two generations at any time, the one being written and the one gathering, and
//! each is woken as a whole.

mod outcome;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use egret_base::sync::lock;
use egret_base::{Limit, LimitExceeded};

use crate::{AppendResult, Batch, Log, LogError, Seq};
use outcome::Outcomes;

/// How long the writer waits before it asks again what became of a batch.
const RESOLVE_AGAIN: Duration = Duration::from_millis(20);

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
        Self {
            waiting_records_max: 65_536,
            waiting_bytes_max: 16 << 20,
        }
    }
}

/// The place of a record among all that were added to a group.
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
    waiting: Mutex<OpenGeneration>,
    arrived: Condvar,
    committer: Mutex<GenerationWriter<L>>,
    outcomes: Outcomes,
}

/// The generation that gathers.
struct OpenGeneration {
    batch: Batch,
    /// The number of the next record added.
    next: u64,
    parked: bool,
    /// The writer must look at its deadline again: another thread has appended.
    woken: bool,
    closed: bool,
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
            waiting: Mutex::new(OpenGeneration {
                batch: Batch::new(),
                next: 0,
                parked: false,
                woken: false,
                closed: false,
                failure: None,
            }),
            arrived: Condvar::new(),
            outcomes: Outcomes::new(log.next()),
            committer: Mutex::new(GenerationWriter {
                log,
                batch: Batch::new(),
            }),
        });
        let owned = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || owned.write_until_closed())
            .map_err(|error| LogError::Io {
                action: "start a thread for",
                file: "a group of appenders".to_owned(),
                source: Arc::new(error),
            })?;
        Ok(Self {
            shared,
            writer: Some(writer),
        })
    }

    /// Adds a record and answers at once. It is durable when [`GroupCommitter::wait`] says so.
    ///
    /// # Errors
    /// [`LogError::Busy`] at a limit; [`LogError::BatchTooLarge`]; what stopped the log.
    pub fn submit(&self, record: &[u8]) -> Result<Ticket, LogError> {
        let (ticket, waiting) = self.shared.add(record)?;
        self.shared.arrive(waiting);
        Ok(ticket)
    }

    /// Adds a record and waits until it is as durable as the log makes it. A caller that finds the
    /// log idle writes the gathered records itself, so that a single caller pays for no switch of
    /// threads.
    ///
    /// # Errors
    /// As [`GroupCommitter::submit`], and what the append failed with.
    pub fn append(&self, record: &[u8]) -> Result<Seq, LogError> {
        let (ticket, waiting) = self.shared.add(record)?;
        let Ok(mut committer) = self.shared.committer.try_lock() else {
            self.shared.arrive(waiting);
            return self.wait(ticket);
        };
        drop(waiting);
        self.shared.commit(&mut committer);
        let due = committer.log.sync_deadline().is_some();
        drop(committer);
        // Callers that arrived meanwhile relied on this thread; from here on the writer thread
        // serves them.
        let mut waiting = self.shared.waiting();
        waiting.woken |= due;
        if due || !waiting.batch.is_empty() {
            self.shared.arrive(waiting);
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

    /// Like [`GroupCommitter::wait`], for any executor.
    pub fn committed(&self, ticket: Ticket) -> CommitFuture<'_> {
        CommitFuture {
            outcomes: &self.shared.outcomes,
            number: ticket.0,
            registered: None,
        }
    }

    /// Does something with the log between two writes, such as reading or truncating it.
    pub fn with_log<R>(&self, work: impl FnOnce(&mut L) -> R) -> R {
        work(&mut self.shared.committer().log)
    }
}

impl<L: Log + 'static> Drop for GroupCommitter<L> {
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting();
        waiting.closed = true;
        self.shared.arrive(waiting);
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the writer of a group of appenders panicked");
        }
    }
}

/// A record's way into the log.
#[derive(Debug)]
pub struct CommitFuture<'group> {
    outcomes: &'group Outcomes,
    number: u64,
    registered: Option<Waker>,
}

impl Future for CommitFuture<'_> {
    type Output = Result<Seq, LogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(known) = self.outcomes.get(self.number) {
            return Poll::Ready(known);
        }
        let waker = context.waker();
        if self
            .registered
            .as_ref()
            .is_some_and(|own| own.will_wake(waker))
        {
            return Poll::Pending;
        }
        if let Some(known) = self.outcomes.register(self.number, waker) {
            return Poll::Ready(known);
        }
        self.registered = Some(waker.clone());
        Poll::Pending
    }
}

impl<L: Log + 'static> CommitterState<L> {
    fn add(&self, record: &[u8]) -> Result<(Ticket, MutexGuard<'_, OpenGeneration>), LogError> {
        let mut waiting = self.waiting();
        if let Some(failure) = &waiting.failure {
            return Err(failure.clone());
        }
        let (records, bytes) = (
            waiting.batch.len() + 1,
            waiting.batch.bytes_with(record.len()),
        );
        if let Err(limit) = self.admit(records as u64, bytes as u64) {
            let alone = waiting.batch.is_empty();
            // What would not fit an empty batch never fits.
            return Err(if alone {
                LogError::BatchTooLarge(limit)
            } else {
                LogError::Busy(limit)
            });
        }
        waiting.batch.push(record);
        let ticket = Ticket(waiting.next);
        waiting.next += 1;
        Ok((ticket, waiting))
    }

    fn admit(&self, records: u64, bytes: u64) -> Result<(), LimitExceeded> {
        Limit::new("waiting_records_max", self.config.waiting_records_max).check(records)?;
        Limit::new("waiting_bytes_max", self.config.waiting_bytes_max).check(bytes)
    }

    /// Wakes the writer if it sleeps; the system is not called otherwise.
    fn arrive(&self, mut waiting: MutexGuard<'_, OpenGeneration>) {
        let parked = std::mem::take(&mut waiting.parked);
        drop(waiting);
        if parked {
            self.arrived.notify_one();
        }
    }

    fn write_until_closed(&self) {
        let mut deadline = None;
        while self.park(deadline) {
            let mut committer = self.committer();
            self.commit(&mut committer);
            let due = committer.log.sync_deadline();
            if due.is_some_and(|due| due <= Instant::now())
                && let Err(error) = committer.log.sync()
            {
                self.waiting().failure = Some(error);
            }
            deadline = committer.log.sync_deadline();
        }
        let mut committer = self.committer();
        if committer.log.sync_deadline().is_some()
            && let Err(error) = committer.log.sync()
        {
            tracing::error!(%error, "the last sync of a log failed");
        }
    }

    /// Sleeps until there is something to write or the deadline for a sync. False at the end.
    fn park(&self, deadline: Option<Instant>) -> bool {
        let mut waiting = self.waiting();
        loop {
            if !waiting.batch.is_empty() || std::mem::take(&mut waiting.woken) {
                return true;
            }
            if waiting.closed {
                return false;
            }
            waiting.parked = true;
            waiting = match deadline {
                None => self
                    .arrived
                    .wait(waiting)
                    .expect("no holder of this lock can panic"),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        waiting.parked = false;
                        return true;
                    }
                    let waited = self.arrived.wait_timeout(waiting, left);
                    waited.expect("no holder of this lock can panic").0
                }
            };
            waiting.parked = false;
        }
    }

    /// Writes the gathered records and wakes the callers that wait for them.
    fn commit(&self, committer: &mut GenerationWriter<L>) {
        let GenerationWriter { log, batch } = committer;
        let mut waiting = self.waiting();
        std::mem::swap(&mut waiting.batch, batch);
        let end = waiting.next;
        drop(waiting);
        if batch.is_empty() {
            return;
        }
        self.outcomes.begin(end);
        let expected = log.next();
        let mut appended = log.append(batch, expected);
        while matches!(appended, Ok(AppendResult::Unknown)) {
            std::thread::park_timeout(RESOLVE_AGAIN);
            appended = log.resolve(batch, expected);
        }
        let failure = match appended {
            Ok(AppendResult::Committed(_)) => return self.outcomes.finish(None),
            Ok(AppendResult::Fenced | AppendResult::Unknown) => LogError::Fenced,
            Err(error) => error,
        };
        batch.clear();
        if !matches!(failure, LogError::Full { .. }) {
            self.waiting().failure = Some(failure.clone());
        }
        self.outcomes.finish(Some(failure));
    }

    fn waiting(&self) -> MutexGuard<'_, OpenGeneration> {
        lock(&self.waiting)
    }

    fn committer(&self) -> MutexGuard<'_, GenerationWriter<L>> {
        lock(&self.committer)
    }
}

#[cfg(test)]
mod tests;
