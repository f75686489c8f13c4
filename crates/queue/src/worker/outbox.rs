//! Readers of outboxes: one connection per database that waits for rows, makes tasks of them, and
//! deletes them once the tasks are durable.
//!
//! A row is there until its task is: there is no position to remember, so that rows of transactions
//! that commit late are not passed over. A row that is read again, after a crash between the two or
//! after the restore of an older database, is detected by its key.

mod chains;
pub(crate) mod handle;
mod holds;
mod metrics;
pub(crate) mod reader_task;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::sync::lock;
use egret_base::{CodedError, Condition, Kind, condition};
use egret_postgres::database_watch::DatabaseVisitor;
use egret_postgres::databases::is_gone;
use egret_postgres::listen::ListeningSession;
use egret_postgres::lock_owner::{LockOutcome, held_by_own_session};
use egret_postgres::retry::Policy;
use egret_postgres::tokio_postgres::Client;
use egret_postgres::{PostgresError, installation};
use tokio::sync::watch;

use crate::error::QueueError;
use crate::store::content::Format;
use crate::store::outbox::{self as store, CheckedRow, Defect, OutboxRow, RejectedRow};
use crate::worker::internal_enqueue::EnqueueRequest;
use crate::worker::new_task::{BATCH_MAX, NewTask};
use crate::worker::outbox::handle::Outbox;
use crate::worker::sinks::EnqueueReceipt;
use holds::{HoldTable, Presence, RowDecision};
use reader_task::{ReaderStatus, ReaderTask};

/// Bytes of rows that are taken at a time: about so many of single rows, and as many of chains.
const BATCH_BYTES_MAX: i64 = 8 << 20;

/// Maximum time to wait for the end of a reader; its server may not answer.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Delays before a reader connects again.
const AGAIN: Policy = Policy {
    attempts: u32::MAX,
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(10),
};

/// Status of a reader that reads.
const READING: &str = "reading";

/// Consecutive interruptions that a restart of the server explains: they are not reported as a
/// fault.
const FAILURES_PASSING: u32 = 5;

/// Starts a reader for each outbox, until the service stops.
pub(crate) async fn watch_over(outbox: Outbox) {
    let inner = &outbox.inner;
    let stopping = inner.stopping.subscribe();
    inner
        .watch
        .run(&outbox, Duration::ZERO, &inner.changed, stopping)
        .await;
    let readers = std::mem::take(&mut *lock(&outbox.inner.readers));
    for (database, mut reader) in readers {
        match tokio::time::timeout(STOP_MAX, &mut reader.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, database, "the reader of an outbox panicked");
            }
            // Unfinished work is repeated at the next start.
            Err(_) => reader.task.abort(),
        }
    }
}

impl DatabaseVisitor for Outbox {
    type Error = QueueError;

    /// Starts a reader for an outbox that has none.
    async fn visit(&self, database: &str) -> Result<(), QueueError> {
        let inner = &self.inner;
        let is_read = lock(&inner.readers)
            .get(database)
            .is_some_and(|reader| !reader.task.is_finished());
        if is_read {
            return Ok(());
        }
        let Some(client) = inner.databases.client_of_existing(database).await? else {
            return Ok(());
        };
        if store::is_installed(&client).await? {
            let told = Arc::new(Mutex::new(ReaderStatus {
                doing: "starting".to_owned(),
                held: BTreeMap::new(),
            }));
            let reading = OutboxReader {
                outbox: self.clone(),
                database: database.to_owned(),
                told: told.clone(),
                stopping: inner.stopping.subscribe(),
                failures: 0,
                unreachable: Condition::new("outbox_unreachable", database),
            };
            let task = tokio::spawn(reading.run());
            lock(&inner.readers).insert(database.to_owned(), ReaderTask { task, told });
        } else {
            lock(&inner.readers).remove(database);
        }
        Ok(())
    }
}

/// Why a session ended.
enum SessionEnd {
    /// The service stops, or there is no outbox any more.
    ForGood,
    /// The reason why the outbox cannot be read.
    Kept(String),
}

/// Whether a table of the outbox is not there any more.
fn is_removed(error: &QueueError) -> bool {
    let QueueError::Postgres(error) = error else {
        return false;
    };
    matches!(&**error, PostgresError::Server { error, .. } if installation::is_removed(error))
}

struct OutboxReader {
    outbox: Outbox,
    database: String,
    told: Arc<Mutex<ReaderStatus>>,
    stopping: watch::Receiver<bool>,
    /// Interruptions since rows were last read.
    failures: u32,
    unreachable: Condition,
}

impl OutboxReader {
    /// Reads across restarts of the server, until the service stops or the outbox is removed.
    async fn run(mut self) {
        while !*self.stopping.borrow() {
            let (reason, passes) = match self.session().await {
                Ok(SessionEnd::ForGood) => break,
                Err(QueueError::Postgres(error)) if is_gone(&error) => break,
                Ok(SessionEnd::Kept(reason)) => (reason, false),
                // If the outbox was removed, the next session finds none.
                Err(error) => {
                    let passes = error.retryable() || is_removed(&error);
                    (egret_base::error::chain(&error), passes)
                }
            };
            self.outbox.inner.metrics.interrupted();
            self.failures += 1;
            if passes && self.failures <= FAILURES_PASSING {
                tracing::debug!(reason, "reading an outbox was interrupted");
            } else {
                self.unreachable
                    .fail(&reason, "cannot read an outbox; retrying");
            }
            self.tell(&reason);
            tokio::select! {
                _ = self.stopping.changed() => {}
                () = tokio::time::sleep(AGAIN.wait(self.failures)) => {}
            }
        }
        // It may have been installed again in the meantime.
        self.outbox.inner.changed.notify_one();
    }

    fn tell(&self, doing: &str) {
        doing.clone_into(&mut lock(&self.told).doing);
    }

    fn tell_held(&self, holds: &HoldTable) {
        let mut told = lock(&self.told);
        told.held = holds.reasons();
        told.doing = match holds.waiting_role() {
            None => READING.to_owned(),
            Some((role, reason)) => {
                format!(
                    "{READING}; rows of role {role} wait for queues that do not exist: {reason}"
                )
            }
        };
    }

    /// Runs one session: takes the reader's lock, then reads for as long as possible.
    async fn session(&mut self) -> Result<SessionEnd, QueueError> {
        let mut stopping = self.stopping.clone();
        // The server, or transactions of others, may keep this waiting for any time. It is repeated
        // at the next start.
        let opened = tokio::select! {
            _ = stopping.changed() => return Ok(SessionEnd::ForGood),
            opened = self.open() => opened?,
        };
        let ListeningSession { client, heard } = match opened {
            Ok(session) => session,
            Err(ended) => return Ok(ended),
        };
        self.outbox.inner.metrics.reading.inc();
        let mut holds = HoldTable::new(&self.database);
        let ended = loop {
            match self.drain(&client, &mut holds).await {
                Ok(()) if *self.stopping.borrow() => break Ok(SessionEnd::ForGood),
                Ok(()) => {}
                Err(error) => break Err(error),
            }
            let poll = self.outbox.inner.queues.config().outbox_poll.duration();
            tokio::select! {
                _ = self.stopping.changed() => break Ok(SessionEnd::ForGood),
                () = heard.notified() => {}
                () = tokio::time::sleep(holds.wait().min(poll)) => {}
            }
        };
        let metrics = &self.outbox.inner.metrics;
        metrics.reading.dec();
        metrics.held.dec_by(holds.len() as i64);
        ended
    }

    /// Opens a session of the reader on an upgraded outbox; otherwise returns why there is none.
    async fn open(&self) -> Result<Result<ListeningSession, SessionEnd>, QueueError> {
        let inner = &self.outbox.inner;
        let attending = inner
            .databases
            .connect_listening(&self.database, store::CHANNEL);
        let mut session = attending.await?;
        let client = &mut session.client;
        if !store::is_installed(client).await? {
            return Ok(Err(SessionEnd::ForGood));
        }
        store::check(client).await?;
        match store::become_reader(client, &inner.lock_owner).await? {
            LockOutcome::Taken => {}
            LockOutcome::HeldByOwnSession => return Err(held_by_own_session().into()),
            LockOutcome::HeldElsewhere => {
                let reason = "another egret reads this outbox: stop one of the two";
                return Ok(Err(SessionEnd::Kept(reason.to_owned())));
            }
        }
        store::install(client).await?;
        store::set_limits(client, self.outbox.size_limits()).await?;
        store::set_up_reader(client).await?;
        Ok(Ok(session))
    }

    /// Processes all waiting rows, except those that are held.
    async fn drain(&mut self, client: &Client, holds: &mut HoldTable) -> Result<(), QueueError> {
        let limits = self.outbox.size_limits();
        let rows_max = BATCH_MAX as i64;
        while !*self.stopping.borrow() {
            let count = self.outbox.queue_count();
            let held = holds.held(BATCH_MAX, count, || self.outbox.queue_names());
            let found = store::next(client, &held, rows_max, BATCH_BYTES_MAX, limits).await?;
            self.tell_held(holds);
            let before = holds.len();
            if found.is_empty() {
                holds.keep(&held)
            } else {
                self.take(client, &found, holds).await?
            }
            self.failures = 0;
            self.unreachable.recover("the outbox is read again");
            let metrics = &self.outbox.inner.metrics;
            metrics.held.inc_by(holds.len() as i64 - before as i64);
            self.tell_held(holds);
            if found.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Makes tasks of rows, and deletes those that have become tasks.
    async fn take(
        &self,
        client: &Client,
        found: &[CheckedRow],
        holds: &mut HoldTable,
    ) -> Result<(), QueueError> {
        let inner = &self.outbox.inner;
        inner.steps.before("enqueue");
        let outcomes = self.enqueue(found).await;
        let (mut taken, mut refused, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        let (mut tasks, mut replayed) = (Vec::new(), 0);
        for (found, outcome) in found.iter().zip(outcomes) {
            match outcome {
                Ok(task) => {
                    holds.release(&found.row.queue);
                    replayed += usize::from(task.replayed);
                    tasks.push(task.id);
                    taken.push(&found.row);
                }
                Err(error) if is_for_good(&error) => refused.push(RejectedRow {
                    row: &found.row,
                    code: error.code(),
                    reason: egret_base::error::chain(&error),
                }),
                Err(error) => waiting.push((&found.row, error)),
            }
        }
        refused.extend(self.hold(waiting, holds));
        if !taken.is_empty() {
            // Rows are deleted for good: their tasks must survive a loss of power first.
            inner.queues.make_durable(&tasks).await?;
            inner.steps.before("delete");
            store::taken(client, &taken).await?;
            inner.metrics.count("enqueued", taken.len() - replayed);
            inner.metrics.count("replayed", replayed);
        }
        if !refused.is_empty() {
            inner.steps.before("reject");
            store::rejected(client, &refused).await?;
            inner.metrics.count("rejected", refused.len());
            let (first, rows) = (&refused[0], refused.len());
            let RejectedRow { row, code, reason } = first;
            let reason = format_args!("{rows} rows for queue {}: {code}: {reason}", row.queue);
            let message = "the queue refused rows of an outbox; they are in egret.outbox_rejected";
            condition::occur("outbox_rows_rejected", &self.database, reason, message);
        }
        Ok(())
    }

    /// Holds the queues of waiting rows. Returns the rows that are rejected: of queues that could
    /// not be created, only some are held.
    fn hold<'r>(
        &self,
        waiting: Vec<(&'r OutboxRow, QueueError)>,
        holds: &mut HoldTable,
    ) -> Vec<RejectedRow<'r>> {
        let queues = &self.outbox.inner.queues;
        let tenant = &queues.config().outbox_tenant;
        let mut verdicts = Vec::with_capacity(waiting.len());
        for (row, error) in &waiting {
            let presence = match queues.known_queue(tenant, &row.queue) {
                Some(_) => Presence::Existing,
                None => Presence::Missing,
            };
            verdicts.push(holds.hold(row, presence, error));
        }
        // A chain waits as a whole, or not at all.
        let rejected: HashSet<&str> = (waiting.iter().zip(&verdicts))
            .filter(|(_, verdict)| **verdict == RowDecision::Rejected)
            .filter_map(|((row, _), _)| row.chain.as_deref())
            .collect();
        let rows = waiting.into_iter().zip(verdicts);
        rows.filter(|((row, _), verdict)| {
            let chain = row.chain.as_deref();
            *verdict == RowDecision::Rejected || chain.is_some_and(|chain| rejected.contains(chain))
        })
        .map(|((row, error), _)| RejectedRow {
            row,
            code: error.code(),
            reason: egret_base::error::chain(&error),
        })
        .collect()
    }

    async fn enqueue(&self, found: &[CheckedRow]) -> Vec<Result<EnqueueReceipt, QueueError>> {
        let queues = &self.outbox.inner.queues;
        let config = queues.config();
        let mut outcomes = vec![None; found.len()];
        let mut chains: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let (mut orders, mut places) = (Vec::new(), Vec::new());
        for (place, found) in found.iter().enumerate() {
            match (&found.row.chain, &found.defect) {
                (Some(chain), _) => chains.entry(chain).or_default().push(place),
                (None, Some(defect)) => {
                    let measure = Measure {
                        what: "the payload",
                        limit: "queue.payload_bytes_max",
                        max_bytes: config.payload_bytes_max.bytes(),
                    };
                    outcomes[place] = Some(Err(error_of(defect, &measure)));
                }
                (None, None) => {
                    places.push(place);
                    orders.push(EnqueueRequest {
                        tenant: &config.outbox_tenant,
                        queue: &found.row.queue,
                        task: task(&found.row),
                        origin: Some((&found.row.key, config.outbox_window.0)),
                    });
                }
            }
        }
        for (place, outcome) in places.into_iter().zip(queues.enqueue_many(&orders).await) {
            outcomes[place] = Some(outcome);
        }
        for places in chains.into_values() {
            let rows: Vec<&CheckedRow> = places.iter().map(|place| &found[*place]).collect();
            for (place, outcome) in places
                .into_iter()
                .zip(chains::hand_over(queues, &rows).await)
            {
                outcomes[place] = Some(outcome);
            }
        }
        let outcomes = outcomes.into_iter();
        outcomes
            .map(|outcome| outcome.expect("each row is of a chain or of none"))
            .collect()
    }
}

/// A value that may be too large, and its limit.
struct Measure {
    what: &'static str,
    limit: &'static str,
    max_bytes: u64,
}

/// The error of a row that was not read.
fn error_of(defect: &Defect, measure: &Measure) -> QueueError {
    match defect {
        Defect::Unreadable(reason) => unreadable(reason),
        Defect::TooLarge { size_bytes } => QueueError::TooLarge {
            what: measure.what,
            size_bytes: *size_bytes,
            limit: measure.limit,
            max_bytes: measure.max_bytes,
        },
    }
}

fn unreadable(reason: &str) -> QueueError {
    QueueError::Invalid {
        what: "row",
        reason: reason.to_owned(),
    }
}

/// A row as a task. The functions that write rows have validated their values; the queue validates
/// rows written in another way.
fn task(row: &OutboxRow) -> NewTask<'_> {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let wish = |number: i32| u32::try_from(number).unwrap_or(u32::MAX);
    let metadata = row.metadata.iter();
    NewTask {
        payload: &row.payload,
        format: if row.is_json {
            Format::Json
        } else {
            Format::Bytes
        },
        priority: row.priority.map(wish),
        ordering_key: &row.ordering_key,
        run_at_ms: unsigned(row.run_at_ms),
        max_attempts: row.max_attempts.map(wish),
        timeout_ms: unsigned(row.timeout_ms),
        unique_key: &row.unique_key,
        unique_window_ms: unsigned(row.unique_window_ms),
        tags: &row.tags,
        metadata: metadata.map(|(name, value)| (&**name, &**value)).collect(),
        callback_url: &row.callback_url,
        traceparent: &row.traceparent,
        ..NewTask::default()
    }
}

/// Whether a retry of the row cannot help. Failures of Egret itself do not count.
fn is_for_good(error: &QueueError) -> bool {
    matches!(
        error.kind(),
        Kind::Invalid | Kind::TooLarge | Kind::NotFound
    )
}
