//! Tails the change feed of a database. One connection serves all subscribers, and is open only
//! while there are some.
//!
//! New groups are read as they are committed, and recent ones are buffered. A subscriber that falls
//! behind the buffer reads from the table until it catches up. Changes committed with relaxed
//! durability are held back until flushed: after a crash of the server, other changes would reuse
//! their positions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::sync::lock;
use tokio::sync::{Mutex as Turns, Notify, watch};
use tokio::time::Instant;

use super::ownership::{OwnershipManager, OwnershipState};
use super::session::SESSION_SETTINGS;
use crate::error::DocumentsError;
use crate::model::FeedPosition;
use crate::store::feed::{Feed, FeedGroup};

/// Groups read in one query, at most.
const READ_GROUPS_MAX: i64 = 100;

/// Changes after which a query returns no further group.
const READ_CHANGES_MAX: i64 = 10_000;

/// Changes in the buffer, at most; each takes 32 bytes.
const BUFFERED_CHANGES_MAX: usize = 50_000;

/// Pause before the next read if another Egret writes, or after an error.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two reads: what is committed in between is read together.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// How long there must be no listener before the buffer restarts at the end of the feed, rather
/// than reading all changes made in between.
const LISTENERLESS_MAX: Duration = Duration::from_secs(5);

/// How often the flushed position is checked. The server flushes every 200 ms by itself.
const FLUSH_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long to wait for that before forcing a flush: the server may delay flushing records written
/// after the last commit.
const FLUSH_WAIT_MAX: Duration = Duration::from_millis(500);

/// Statement timeout: all subscribers wait behind a statement.
const STATEMENT_TIMEOUT_SQL: &str = "SET statement_timeout = '10s'";

pub(crate) struct FeedTailer {
    ownership: Arc<OwnershipManager>,
    connection: Mutex<Option<Arc<FeedConnection>>>,
    connect_lock: Turns<()>,
    events: watch::Sender<FeedEvent>,
    listener_added: Notify,
}

/// Event for all listeners.
#[derive(Clone, Debug)]
enum FeedEvent {
    /// There may be further changes.
    More,
    /// Reading the feed failed.
    Failed(DocumentsError),
    /// The tailer was shut down.
    Closed,
}

/// A listener for further changes. The feed is read while there is at least one.
pub(crate) struct FeedListener {
    events: watch::Receiver<FeedEvent>,
}

/// A connection with the state read through it. A new connection starts from nothing: it may lead
/// to another server, with fewer changes.
struct FeedConnection {
    feed: Feed,
    /// Changes up to this position are flushed.
    durable: AtomicI64,
    /// Serializes waiting for a flush.
    flush_lock: Turns<()>,
    recent_groups: Mutex<Option<RecentGroups>>,
}

/// The buffered groups, contiguous.
struct RecentGroups {
    groups: VecDeque<Arc<FeedGroup>>,
    /// Number of changes in all groups.
    changes: usize,
    /// The position before the first group.
    start_position: FeedPosition,
}

#[derive(Default)]
struct FeedPage {
    groups: Vec<Arc<FeedGroup>>,
    /// Whether there are further groups.
    has_more: bool,
}

impl FeedTailer {
    pub(crate) fn new(ownership: Arc<OwnershipManager>) -> Self {
        Self {
            ownership,
            connection: Mutex::default(),
            connect_lock: Turns::default(),
            events: watch::Sender::new(FeedEvent::More),
            listener_added: Notify::new(),
        }
    }

    /// Reads the feed for the listeners, until shutdown.
    pub(crate) async fn run(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut writer_position = self.ownership.writer.position();
        while !*stopping.borrow() {
            tokio::select! {
                _ = stopping.changed() => {}
                () = self.read_once(&mut writer_position) => {}
            }
        }
        self.events.send_replace(FeedEvent::Closed);
        *lock(&self.connection) = None;
    }

    /// Registers a listener and wakes the reader.
    pub(crate) fn listen(&self) -> FeedListener {
        let events = self.events.subscribe();
        self.listener_added.notify_one();
        FeedListener { events }
    }

    /// Position up to which the buffer has changes; 0 without a connection.
    pub(crate) fn buffered_position(&self) -> FeedPosition {
        let connection = self.current_connection();
        connection.and_then(|line| line.buffered_position()).unwrap_or_default()
    }

    /// The last position of the feed; waits until it is flushed.
    pub(crate) async fn last_position(&self) -> Result<FeedPosition, DocumentsError> {
        self.get_or_connect().await?.last_position().await
    }

    /// Groups after a position, in order, for listeners: not empty, unless the position is the end
    /// of the buffer.
    ///
    /// # Errors
    /// [`DocumentsError::ChangesGone`] and [`DocumentsError::ChangesAhead`].
    pub(crate) async fn groups_after(
        &self,
        position: FeedPosition,
    ) -> Result<Vec<Arc<FeedGroup>>, DocumentsError> {
        let buffered_groups =
            self.current_connection().and_then(|line| line.groups_after(position));
        match buffered_groups {
            Some(groups) => Ok(groups),
            None => self.read_page(position).await,
        }
    }

    /// Groups after a position, read from the table: not empty, unless there are none.
    ///
    /// # Errors
    /// [`DocumentsError::ChangesGone`] and [`DocumentsError::ChangesAhead`].
    pub(crate) async fn read_page(
        &self,
        after: FeedPosition,
    ) -> Result<Vec<Arc<FeedGroup>>, DocumentsError> {
        let connection = self.get_or_connect().await?;
        let groups = connection.read_page(after).await?.groups;
        let start_position = groups.first().map(|group| group.start_position());
        if start_position.is_none_or(|begins| begins > after) {
            let forgotten = connection.feed.read_forgotten().await?;
            if after < forgotten {
                return Err(DocumentsError::ChangesGone { forgotten });
            }
        }
        if groups.is_empty() {
            // `written_lsn` is none on a replica, which may simply lag behind its primary.
            let (last, written_lsn) = connection.feed.read_written().await?;
            if written_lsn.is_some() && after > last {
                return Err(DocumentsError::ChangesAhead { last });
            }
        }
        Ok(groups)
    }

    /// Reads once, then waits until there may be further changes.
    async fn read_once(&self, writer_position: &mut watch::Receiver<FeedPosition>) {
        self.await_listener().await;
        let started = Instant::now();
        // Writes from here on trigger another read.
        writer_position.mark_unchanged();
        match self.read_new_groups().await {
            Ok(true) => {}
            Ok(false) => {
                self.await_changes(writer_position).await;
                tokio::time::sleep_until(started + READ_INTERVAL_MIN).await;
            }
            Err(error) => {
                self.events.send_replace(FeedEvent::Failed(error));
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    async fn await_listener(&self) {
        let wait_started = Instant::now();
        while self.events.receiver_count() == 0 {
            self.listener_added.notified().await;
        }
        if wait_started.elapsed() >= LISTENERLESS_MAX
            && let Some(connection) = self.current_connection()
        {
            *lock(&connection.recent_groups) = None;
        }
    }

    async fn await_changes(&self, writer_position: &mut watch::Receiver<FeedPosition>) {
        loop {
            let is_owner = self.ownership.state() == OwnershipState::Owner;
            tokio::select! {
                _ = writer_position.changed() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => if !is_owner {
                    return;
                }
            }
        }
    }

    /// Reads new groups into the buffer and notifies the listeners. Returns whether there are more.
    async fn read_new_groups(&self) -> Result<bool, DocumentsError> {
        let connection = self.get_or_connect().await?;
        let Some(position) = connection.buffered_position() else {
            let end_position = connection.last_position().await?;
            *lock(&connection.recent_groups) = Some(RecentGroups::empty_after(end_position));
            self.events.send_replace(FeedEvent::More);
            return Ok(false);
        };
        let page = connection.read_page(position).await?;
        if !page.groups.is_empty() {
            connection.buffer_groups(page.groups);
            self.events.send_replace(FeedEvent::More);
        }
        Ok(page.has_more)
    }

    /// The connection, if it is open.
    fn current_connection(&self) -> Option<Arc<FeedConnection>> {
        let connection = lock(&self.connection).clone();
        connection.filter(|line| !line.feed.is_closed())
    }

    async fn get_or_connect(&self) -> Result<Arc<FeedConnection>, DocumentsError> {
        if let Some(connection) = self.current_connection() {
            return Ok(connection);
        }
        let _guard = self.connect_lock.lock().await;
        if let Some(line) = self.current_connection() {
            return Ok(line);
        }
        let client = self.ownership.connect().await?;
        client.batch_execute(SESSION_SETTINGS).await?;
        client.batch_execute(STATEMENT_TIMEOUT_SQL).await?;
        let line = Arc::new(FeedConnection {
            feed: Feed::new(client).await?,
            durable: AtomicI64::new(0),
            flush_lock: Turns::default(),
            recent_groups: Mutex::default(),
        });
        *lock(&self.connection) = Some(line.clone());
        Ok(line)
    }
}

impl FeedListener {
    /// Marks what is known now as seen; to be called before reading.
    pub(crate) fn mark_seen(&mut self) {
        self.events.mark_unchanged();
    }

    /// Waits until there may be changes committed after [`Self::mark_seen`].
    ///
    /// # Errors
    /// The error of a failed read; [`DocumentsError::Stopping`] at shutdown.
    pub(crate) async fn wait(&mut self) -> Result<(), DocumentsError> {
        let is_closed = matches!(*self.events.borrow(), FeedEvent::Closed);
        if is_closed || self.events.changed().await.is_err() {
            return Err(DocumentsError::Stopping);
        }
        let event = self.events.borrow().clone();
        match event {
            FeedEvent::More => Ok(()),
            FeedEvent::Failed(error) => Err(error),
            FeedEvent::Closed => Err(DocumentsError::Stopping),
        }
    }
}

impl FeedConnection {
    fn buffered_position(&self) -> Option<FeedPosition> {
        lock(&self.recent_groups).as_ref().map(RecentGroups::end_position)
    }

    /// The groups after a position; none if the buffer does not cover it.
    fn groups_after(&self, position: FeedPosition) -> Option<Vec<Arc<FeedGroup>>> {
        let recent = lock(&self.recent_groups);
        let covers = |recent: &&RecentGroups| {
            (recent.start_position..=recent.end_position()).contains(&position)
        };
        let recent = recent.as_ref().filter(covers)?;
        let first = recent.groups.partition_point(|group| group.position <= position);
        let groups = recent.groups.range(first..);
        Some(groups.take(READ_GROUPS_MAX as usize).cloned().collect())
    }

    /// Appends groups to the buffer.
    fn buffer_groups(&self, groups: Vec<Arc<FeedGroup>>) {
        if let Some(recent) = lock(&self.recent_groups).as_mut() {
            groups.into_iter().for_each(|group| recent.push(group));
        }
    }

    /// The last position of the feed; waits until it is flushed.
    async fn last_position(&self) -> Result<FeedPosition, DocumentsError> {
        let (position, is_relaxed) = self.feed.read_last().await?;
        if is_relaxed {
            self.await_flush(position).await?;
        }
        Ok(position)
    }

    /// The next groups after a position. Returns those known to be flushed; if there are none,
    /// waits until all of them are.
    async fn read_page(&self, after: FeedPosition) -> Result<FeedPage, DocumentsError> {
        let end = FeedPosition(after.0.saturating_add(READ_CHANGES_MAX));
        let mut groups = self.feed.read_groups(after, READ_GROUPS_MAX, end).await?;
        let Some(last) = groups.last().map(|group| group.position) else {
            return Ok(FeedPage::default());
        };
        let mut has_more = groups.len() as i64 == READ_GROUPS_MAX || last >= end;
        let durable = self.durable();
        // A commit with full durability has flushed all earlier commits.
        let last_durable =
            groups.iter().rposition(|group| !group.is_relaxed || group.position <= durable);
        match last_durable {
            None => self.await_flush(last).await?,
            Some(known) => {
                has_more |= known + 1 < groups.len();
                groups.truncate(known + 1);
                let position = groups[known].position;
                self.durable.fetch_max(position.0, Ordering::Relaxed);
            }
        }
        Ok(FeedPage { groups: groups.into_iter().map(Arc::new).collect(), has_more })
    }

    /// Changes up to this position are known to be flushed.
    fn durable(&self) -> FeedPosition {
        FeedPosition(self.durable.load(Ordering::Relaxed))
    }

    /// Waits until all changes up to a position that was read are flushed.
    async fn await_flush(&self, position: FeedPosition) -> Result<(), DocumentsError> {
        let _guard = self.flush_lock.lock().await;
        if self.durable() >= position {
            return Ok(());
        }
        let (last_position, written_lsn) = self.feed.read_written().await?;
        if let Some(written) = written_lsn {
            let end = Instant::now() + FLUSH_WAIT_MAX;
            while self.feed.read_flushed_lsn().await? < written {
                if Instant::now() >= end {
                    self.feed.flush().await?;
                    break;
                }
                tokio::time::sleep(FLUSH_POLL_INTERVAL).await;
            }
        }
        self.durable.fetch_max(last_position.0, Ordering::Relaxed);
        Ok(())
    }
}

impl RecentGroups {
    fn empty_after(start_position: FeedPosition) -> Self {
        Self { groups: VecDeque::new(), changes: 0, start_position }
    }

    fn end_position(&self) -> FeedPosition {
        let last = self.groups.back();
        last.map_or(self.start_position, |group| group.position)
    }

    fn push(&mut self, group: Arc<FeedGroup>) {
        self.changes += group.changes.len();
        self.groups.push_back(group);
        while self.changes > BUFFERED_CHANGES_MAX
            && let Some(evicted) = self.groups.pop_front()
        {
            self.changes -= evicted.changes.len();
            self.start_position = evicted.position;
        }
    }
}
