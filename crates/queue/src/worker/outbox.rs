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
use egret_postgres::databases::is_database_missing;
use egret_postgres::listen::ListeningSession;
use egret_postgres::lock_owner::{LockOutcome, own_session_error};
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
const RECONNECT_POLICY: Policy = Policy {
    attempts: u32::MAX,
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(10),
};

/// Status of a reader that reads.
const STATUS_READING: &str = "reading";

/// Consecutive interruptions that a restart of the server explains: they are not reported as a
/// fault.
const TRANSIENT_FAILURES_MAX: u32 = 5;

/// Starts a reader for each outbox, until the service stops.
pub(crate) async fn run_readers(outbox: Outbox) {
    let inner = &outbox.inner;
    let stopping = inner.stopping.subscribe();
    inner.watch.run(&outbox, Duration::ZERO, &inner.outboxes_changed, stopping).await;
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
        let is_read =
            lock(&inner.readers).get(database).is_some_and(|reader| !reader.task.is_finished());
        if is_read {
            return Ok(());
        }
        let Some(client) = inner.databases.client_if_exists(database).await? else {
            return Ok(());
        };
        if store::is_installed(&client).await? {
            let status = Arc::new(Mutex::new(ReaderStatus {
                doing: "starting".to_owned(),
                held: BTreeMap::new(),
            }));
            let reading = OutboxReader {
                outbox: self.clone(),
                database: database.to_owned(),
                status: status.clone(),
                stopping: inner.stopping.subscribe(),
                failures: 0,
                unreachable: Condition::new("outbox_unreachable", database),
            };
            let task = tokio::spawn(reading.run());
            lock(&inner.readers).insert(database.to_owned(), ReaderTask { task, status });
        } else {
            lock(&inner.readers).remove(database);
        }
        Ok(())
    }
}

/// Why a session ended.
enum SessionEnd {
    /// The service stops, or there is no outbox any more.
    Final,
    /// The reason why the outbox cannot be read.
    Blocked(String),
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
    status: Arc<Mutex<ReaderStatus>>,
    stopping: watch::Receiver<bool>,
    /// Interruptions since rows were last read.
    failures: u32,
    unreachable: Condition,
}

impl OutboxReader {
    /// Reads across restarts of the server, until the service stops or the outbox is removed.
    async fn run(mut self) {
        while !*self.stopping.borrow() {
            let (reason, passes) = match self.run_session().await {
                Ok(SessionEnd::Final) => break,
                Err(QueueError::Postgres(error)) if is_database_missing(&error) => break,
                Ok(SessionEnd::Blocked(reason)) => (reason, false),
                // If the outbox was removed, the next session finds none.
                Err(error) => {
                    let is_transient = error.retryable() || is_removed(&error);
                    (egret_base::error::chain(&error), is_transient)
                }
            };
            self.outbox.inner.metrics.count_interruption();
            self.failures += 1;
            if passes && self.failures <= TRANSIENT_FAILURES_MAX {
                tracing::debug!(reason, "reading an outbox was interrupted");
            } else {
                self.unreachable.fail(&reason, "cannot read an outbox; retrying");
            }
            self.set_doing(&reason);
            tokio::select! {
                _ = self.stopping.changed() => {}
                () = tokio::time::sleep(RECONNECT_POLICY.wait_after(self.failures)) => {}
            }
        }
        // It may have been installed again in the meantime.
        self.outbox.inner.outboxes_changed.notify_one();
    }

    fn set_doing(&self, doing: &str) {
        doing.clone_into(&mut lock(&self.status).doing);
    }

    fn publish_holds(&self, holds: &HoldTable) {
        let mut status = lock(&self.status);
        status.held = holds.reasons();
        status.doing = match holds.waiting_role() {
            None => STATUS_READING.to_owned(),
            Some((role, reason)) => {
                format!(
                    "{STATUS_READING}; rows of role {role} wait for queues that do not exist: {reason}"
                )
            }
        };
    }

    /// Runs one session: takes the reader's lock, then reads for as long as possible.
    async fn run_session(&mut self) -> Result<SessionEnd, QueueError> {
        let mut stopping = self.stopping.clone();
        // The server, or transactions of others, may keep this waiting for any time. It is repeated
        // at the next start.
        let opened = tokio::select! {
            _ = stopping.changed() => return Ok(SessionEnd::Final),
            opened = self.open_session() => opened?,
        };
        let ListeningSession { client, wakeup: heard } = match opened {
            Ok(session) => session,
            Err(ended) => return Ok(ended),
        };
        self.outbox.inner.metrics.reading.inc();
        let mut holds = HoldTable::new(&self.database);
        let end = loop {
            match self.drain_rows(&client, &mut holds).await {
                Ok(()) if *self.stopping.borrow() => break Ok(SessionEnd::Final),
                Ok(()) => {}
                Err(error) => break Err(error),
            }
            let poll = self.outbox.inner.queues.config().outbox_poll.duration();
            tokio::select! {
                _ = self.stopping.changed() => break Ok(SessionEnd::Final),
                () = heard.notified() => {}
                () = tokio::time::sleep(holds.next_retry_delay().min(poll)) => {}
            }
        };
        let metrics = &self.outbox.inner.metrics;
        metrics.reading.dec();
        metrics.held.dec_by(holds.len() as i64);
        end
    }

    /// Opens a session of the reader on an upgraded outbox; otherwise returns why there is none.
    async fn open_session(&self) -> Result<Result<ListeningSession, SessionEnd>, QueueError> {
        let inner = &self.outbox.inner;
        let connecting = inner.databases.connect_listening(&self.database, store::CHANNEL);
        let mut session = connecting.await?;
        let client = &mut session.client;
        if !store::is_installed(client).await? {
            return Ok(Err(SessionEnd::Final));
        }
        store::check_outbox_owner(client).await?;
        match store::lock_as_reader(client, &inner.lock_owner).await? {
            LockOutcome::Taken => {}
            LockOutcome::HeldByOwnSession => return Err(own_session_error().into()),
            LockOutcome::HeldElsewhere => {
                let reason = "another egret reads this outbox: stop one of the two";
                return Ok(Err(SessionEnd::Blocked(reason.to_owned())));
            }
        }
        store::install(client).await?;
        store::set_limits(client, self.outbox.size_limits()).await?;
        store::set_up_reader(client).await?;
        Ok(Ok(session))
    }

    /// Processes all waiting rows, except those that are held.
    async fn drain_rows(
        &mut self,
        client: &Client,
        holds: &mut HoldTable,
    ) -> Result<(), QueueError> {
        let limits = self.outbox.size_limits();
        let rows_max = BATCH_MAX as i64;
        while !*self.stopping.borrow() {
            let count = self.outbox.queue_count();
            let held = holds.held_rows(BATCH_MAX, count, || self.outbox.queue_names());
            let rows = store::next_rows(client, &held, rows_max, BATCH_BYTES_MAX, limits).await?;
            self.publish_holds(holds);
            let count_before = holds.len();
            if rows.is_empty() {
                holds.retain_held(&held)
            } else {
                self.process_rows(client, &rows, holds).await?
            }
            self.failures = 0;
            self.unreachable.recover("the outbox is read again");
            let metrics = &self.outbox.inner.metrics;
            metrics.held.inc_by(holds.len() as i64 - count_before as i64);
            self.publish_holds(holds);
            if rows.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Makes tasks of rows, and deletes those that have become tasks.
    async fn process_rows(
        &self,
        client: &Client,
        found: &[CheckedRow],
        holds: &mut HoldTable,
    ) -> Result<(), QueueError> {
        let inner = &self.outbox.inner;
        inner.steps.before("enqueue");
        let outcomes = self.enqueue_rows(found).await;
        let (mut taken, mut refused, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        let (mut tasks, mut replayed) = (Vec::new(), 0);
        for (checked_row, outcome) in found.iter().zip(outcomes) {
            match outcome {
                Ok(task) => {
                    holds.release(&checked_row.row.queue);
                    replayed += usize::from(task.replayed);
                    tasks.push(task.id);
                    taken.push(&checked_row.row);
                }
                Err(error) if is_permanent(&error) => refused.push(RejectedRow {
                    row: &checked_row.row,
                    code: error.code(),
                    reason: egret_base::error::chain(&error),
                }),
                Err(error) => waiting.push((&checked_row.row, error)),
            }
        }
        refused.extend(self.hold_rows(waiting, holds));
        if !taken.is_empty() {
            // Rows are deleted for good: their tasks must survive a loss of power first.
            inner.queues.make_durable(&tasks).await?;
            inner.steps.before("delete");
            store::delete_rows(client, &taken).await?;
            inner.metrics.count("enqueued", taken.len() - replayed);
            inner.metrics.count("replayed", replayed);
        }
        if !refused.is_empty() {
            inner.steps.before("reject");
            store::move_rejected_rows(client, &refused).await?;
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
    fn hold_rows<'r>(
        &self,
        waiting: Vec<(&'r OutboxRow, QueueError)>,
        holds: &mut HoldTable,
    ) -> Vec<RejectedRow<'r>> {
        let queues = &self.outbox.inner.queues;
        let tenant = &queues.config().outbox_tenant;
        let mut decisions = Vec::with_capacity(waiting.len());
        for (row, error) in &waiting {
            let presence = match queues.find_queue(tenant, &row.queue) {
                Some(_) => Presence::Existing,
                None => Presence::Missing,
            };
            decisions.push(holds.hold(row, presence, error));
        }
        // A chain waits as a whole, or not at all.
        let rejected: HashSet<&str> = (waiting.iter().zip(&decisions))
            .filter(|(_, decision)| **decision == RowDecision::Rejected)
            .filter_map(|((row, _), _)| row.chain.as_deref())
            .collect();
        let rows = waiting.into_iter().zip(decisions);
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

    async fn enqueue_rows(&self, found: &[CheckedRow]) -> Vec<Result<EnqueueReceipt, QueueError>> {
        let queues = &self.outbox.inner.queues;
        let config = queues.config();
        let mut outcomes = vec![None; found.len()];
        let mut chains: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let (mut requests, mut indexes) = (Vec::new(), Vec::new());
        for (index, checked_row) in found.iter().enumerate() {
            match (&checked_row.row.chain, &checked_row.defect) {
                (Some(chain), _) => chains.entry(chain).or_default().push(index),
                (None, Some(defect)) => {
                    let measure = Measure {
                        what: "the payload",
                        limit: "queue.payload_bytes_max",
                        max_bytes: config.payload_bytes_max.bytes(),
                    };
                    outcomes[index] = Some(Err(defect_error(defect, &measure)));
                }
                (None, None) => {
                    indexes.push(index);
                    requests.push(EnqueueRequest {
                        tenant: &config.outbox_tenant,
                        queue: &checked_row.row.queue,
                        task: new_task(&checked_row.row),
                        origin: Some((&checked_row.row.key, config.outbox_window.0)),
                    });
                }
            }
        }
        for (place, outcome) in indexes.into_iter().zip(queues.enqueue_many(&requests).await) {
            outcomes[place] = Some(outcome);
        }
        for places in chains.into_values() {
            let rows: Vec<&CheckedRow> = places.iter().map(|place| &found[*place]).collect();
            for (place, outcome) in
                places.into_iter().zip(chains::enqueue_chain_rows(queues, &rows).await)
            {
                outcomes[place] = Some(outcome);
            }
        }
        let outcomes = outcomes.into_iter();
        outcomes.map(|outcome| outcome.expect("each row is of a chain or of none")).collect()
    }
}

/// A value that may be too large, and its limit.
struct Measure {
    what: &'static str,
    limit: &'static str,
    max_bytes: u64,
}

/// The error of a row that was not read.
fn defect_error(defect: &Defect, measure: &Measure) -> QueueError {
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
    QueueError::Invalid { what: "row", reason: reason.to_owned() }
}

/// A row as a task. The functions that write rows have validated their values; the queue validates
/// rows written in another way.
fn new_task(row: &OutboxRow) -> NewTask<'_> {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let clamp_u32 = |number: i32| u32::try_from(number).unwrap_or(u32::MAX);
    let metadata = row.metadata.iter();
    NewTask {
        payload: &row.payload,
        format: if row.is_json { Format::Json } else { Format::Bytes },
        priority: row.priority.map(clamp_u32),
        ordering_key: &row.ordering_key,
        run_at_ms: unsigned(row.run_at_ms),
        max_attempts: row.max_attempts.map(clamp_u32),
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
fn is_permanent(error: &QueueError) -> bool {
    matches!(error.kind(), Kind::Invalid | Kind::TooLarge | Kind::NotFound)
}
