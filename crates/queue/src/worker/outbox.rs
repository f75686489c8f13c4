//! Readers of outboxes: one connection per database that waits for rows, makes tasks of them, and
//! deletes them when the tasks are kept.
//!
//! A row is there until its task is: there is no position to remember, so that rows of transactions
//! that commit late are not passed over. A row that is met again, after a crash between the two or
//! after the restore of an older database, is told by its key.

mod chains;
mod holds;
pub(crate) mod metrics;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::{Coded, Condition, Kind, condition};
use egret_postgres::database_watch::DatabaseVisitor;
use egret_postgres::databases::is_gone;
use egret_postgres::listen::Attentive;
use egret_postgres::lock_owner::{LockOutcome, held_by_own_session};
use egret_postgres::retry::Policy;
use egret_postgres::tokio_postgres::Client;
use egret_postgres::{PostgresError, installation};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::feed::Order;
use crate::api::lock;
use crate::api::outbox::Outbox;
use crate::api::produce::{BATCH_MAX, Format, NewTask};
use crate::api::sink::Enqueued;
use crate::error::QueueError;
use crate::store::outbox::{self as store, Defect, Found, OutboxRow, Refused};
use holds::{Holds, Presence, Verdict};

/// Bytes of rows that are taken at a time: about so many of single rows, and as many of chains.
const BATCH_BYTES_MAX: i64 = 8 << 20;

/// How long a reader may take to end; its server may not answer.
const STOP_MAX: Duration = Duration::from_secs(5);

/// How long it is waited after an interruption.
const AGAIN: Policy = Policy {
    attempts: u32::MAX,
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(10),
};

/// What a reader does that can.
const READING: &str = "reading";

/// Interruptions in a row that a restart of the server explains: they are no fault yet.
const FAILURES_PASSING: u32 = 5;

/// The reader of one database.
pub(crate) struct Reader {
    task: JoinHandle<()>,
    told: Arc<Mutex<Told>>,
}

/// What a reader says of itself.
#[derive(Default)]
struct Told {
    doing: String,
    held: BTreeMap<String, String>,
}

impl Reader {
    /// What it does, and which queues it holds back.
    pub fn told(&self) -> (String, BTreeMap<String, String>) {
        let told = lock(&self.told);
        (told.doing.clone(), told.held.clone())
    }
}

/// Looks for outboxes and has each read, until everything stops.
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
                tracing::error!(%error, database, "the reader of an outbox ended badly");
            }
            // What it was at is done again at the next start.
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
            let told = Arc::new(Mutex::new(Told::default()));
            let reading = Reading {
                outbox: self.clone(),
                database: database.to_owned(),
                told: told.clone(),
                stopping: inner.stopping.subscribe(),
            };
            let task = tokio::spawn(reading.run());
            lock(&inner.readers).insert(database.to_owned(), Reader { task, told });
        } else {
            lock(&inner.readers).remove(database);
        }
        Ok(())
    }
}

/// Why a session ended.
enum Ended {
    /// Everything stops, or there is no outbox any more.
    ForGood,
    /// What keeps it from reading.
    Kept(String),
}

/// Whether a table of the outbox is not there any more.
fn is_removed(error: &QueueError) -> bool {
    let QueueError::Postgres(error) = error else {
        return false;
    };
    matches!(&**error, PostgresError::Server { error, .. } if installation::is_removed(error))
}

struct Reading {
    outbox: Outbox,
    database: String,
    told: Arc<Mutex<Told>>,
    stopping: watch::Receiver<bool>,
}

impl Reading {
    /// Reads over restarts of the server, until everything stops or the outbox is gone.
    async fn run(mut self) {
        let mut failures = 0;
        let unreachable = Condition::new("outbox_unreachable", self.database.as_str());
        while !*self.stopping.borrow() {
            let (reason, passes) = match self.session(&mut failures, &unreachable).await {
                Ok(Ended::ForGood) => break,
                Err(QueueError::Postgres(error)) if is_gone(&error) => break,
                Ok(Ended::Kept(reason)) => (reason, false),
                // Where the outbox was removed, the next session finds none.
                Err(error) => {
                    let passes = error.retryable() || is_removed(&error);
                    (egret_base::error::chain(&error), passes)
                }
            };
            self.outbox.inner.metrics.interrupted();
            failures += 1;
            if passes && failures <= FAILURES_PASSING {
                tracing::debug!(reason, "reading an outbox was interrupted");
            } else {
                unreachable.fail(&reason, "an outbox cannot be read; retrying");
            }
            self.tell(&reason);
            tokio::select! {
                _ = self.stopping.changed() => {}
                () = tokio::time::sleep(AGAIN.wait(failures)) => {}
            }
        }
        // It may have been made again in the meantime.
        self.outbox.inner.changed.notify_one();
    }

    fn tell(&self, doing: &str) {
        doing.clone_into(&mut lock(&self.told).doing);
    }

    fn tell_held(&self, holds: &Holds) {
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

    /// One connection: becomes the reader, then reads for as long as it can.
    async fn session(
        &mut self,
        failures: &mut u32,
        unreachable: &Condition,
    ) -> Result<Ended, QueueError> {
        let inner = &self.outbox.inner;
        let attending = inner.databases.attend(&self.database, store::CHANNEL);
        let Attentive { mut client, heard } = attending.await?;
        if !store::is_installed(&client).await? {
            return Ok(Ended::ForGood);
        }
        store::check(&client).await?;
        match store::become_reader(&client, &inner.lock_owner).await? {
            LockOutcome::Taken => {}
            LockOutcome::HeldByOwnSession => return Err(held_by_own_session().into()),
            LockOutcome::HeldElsewhere => {
                let reason = "another egret reads this outbox: stop it, or let it go on alone";
                return Ok(Ended::Kept(reason.to_owned()));
            }
        }
        store::install(&mut client).await?;
        store::set_limits(&client, self.outbox.size_limits()).await?;
        store::set_up_reader(&client).await?;
        self.tell(READING);
        unreachable.recover("the outbox is read again");
        *failures = 0;
        let reading = &self.outbox.inner.metrics.reading;
        reading.inc();
        let mut holds = Holds::new(&self.database);
        let ended = loop {
            match self.drain(&client, &mut holds).await {
                Ok(()) if *self.stopping.borrow() => break Ok(Ended::ForGood),
                Ok(()) => {}
                Err(error) => break Err(error),
            }
            let poll = self.outbox.inner.queues.config().outbox_poll.duration();
            tokio::select! {
                _ = self.stopping.changed() => break Ok(Ended::ForGood),
                () = heard.notified() => {}
                () = tokio::time::sleep(holds.wait().min(poll)) => {}
            }
        };
        reading.dec();
        self.outbox.inner.metrics.held.dec_by(holds.len() as i64);
        ended
    }

    /// Takes what is there, except of queues that are held.
    async fn drain(&self, client: &Client, holds: &mut Holds) -> Result<(), QueueError> {
        let limits = self.outbox.size_limits();
        let rows_max = BATCH_MAX as i64;
        while !*self.stopping.borrow() {
            let count = self.outbox.queue_count();
            let held = holds.held(BATCH_MAX, count, || self.outbox.queue_names());
            let found = store::next(client, &held, rows_max, BATCH_BYTES_MAX, limits).await?;
            let before = holds.len();
            match found.is_empty() {
                true => holds.keep(&held),
                false => self.take(client, &found, holds).await?,
            }
            let metrics = &self.outbox.inner.metrics;
            metrics.held.inc_by(holds.len() as i64 - before as i64);
            self.tell_held(holds);
            if found.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Makes tasks of rows, and deletes those that are kept.
    async fn take(
        &self,
        client: &Client,
        found: &[Found],
        holds: &mut Holds,
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
                Err(error) if is_for_good(&error) => refused.push(Refused {
                    row: &found.row,
                    code: error.code(),
                    reason: egret_base::error::chain(&error),
                }),
                Err(error) => waiting.push((&found.row, error)),
            }
        }
        refused.extend(self.hold(waiting, holds));
        if !taken.is_empty() {
            // Rows are deleted for good, whatever becomes of the power.
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
            let Refused { row, code, reason } = first;
            let reason = format_args!("{rows} rows for queue {}: {code}: {reason}", row.queue);
            let message = "the queue refused rows of an outbox; they are in egret.outbox_rejected";
            condition::occur("outbox_rows_rejected", &self.database, reason, message);
        }
        Ok(())
    }

    /// Holds the queues of rows that wait. Returns the rows that are rejected: of queues that could not be
    /// created, only some are held.
    fn hold<'r>(
        &self,
        waiting: Vec<(&'r OutboxRow, QueueError)>,
        holds: &mut Holds,
    ) -> Vec<Refused<'r>> {
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
            .filter(|(_, verdict)| **verdict == Verdict::Rejected)
            .filter_map(|((row, _), _)| row.chain.as_deref())
            .collect();
        let rows = waiting.into_iter().zip(verdicts);
        rows.filter(|((row, _), verdict)| {
            let chain = row.chain.as_deref();
            *verdict == Verdict::Rejected || chain.is_some_and(|chain| rejected.contains(chain))
        })
        .map(|((row, error), _)| Refused {
            row,
            code: error.code(),
            reason: egret_base::error::chain(&error),
        })
        .collect()
    }

    async fn enqueue(&self, found: &[Found]) -> Vec<Result<Enqueued, QueueError>> {
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
                    orders.push(Order {
                        tenant: &config.outbox_tenant,
                        queue: &found.row.queue,
                        task: task(&found.row),
                        origin: Some((&found.row.key, config.outbox_window.0)),
                    });
                }
            }
        }
        for (place, outcome) in places.into_iter().zip(queues.hand_over(&orders).await) {
            outcomes[place] = Some(outcome);
        }
        for places in chains.into_values() {
            let rows: Vec<&Found> = places.iter().map(|place| &found[*place]).collect();
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

/// What may be too large, and by which limit.
struct Measure {
    what: &'static str,
    limit: &'static str,
    max_bytes: u64,
}

/// Why a row is refused that was not read.
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

/// A row as a task. The functions that write rows have checked what they hold; who writes them
/// otherwise is told by the queue.
fn task(row: &OutboxRow) -> NewTask<'_> {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let wish = |number: i32| u32::try_from(number).unwrap_or(u32::MAX);
    let metadata = row.metadata.iter();
    NewTask {
        payload: &row.payload,
        format: match row.is_json {
            true => Format::Json,
            false => Format::Bytes,
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

/// Whether handing a row over again cannot help. What ails Egret itself is no fault of the row's.
fn is_for_good(error: &QueueError) -> bool {
    matches!(
        error.kind(),
        Kind::Invalid | Kind::TooLarge | Kind::NotFound
    )
}
