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
use super::session::SETTINGS;
use crate::error::DocumentsError;
use crate::model::FeedPosition;
use crate::store::feed::{Feed, FeedGroup};

/// Groups read in one query, at most.
const GROUPS_TOGETHER: i64 = 100;

/// Changes after which a query returns no further group.
const CHANGES_TOGETHER: i64 = 10_000;

/// Changes in the buffer, at most; each takes 32 bytes.
const REMEMBERED_MAX: usize = 50_000;

/// Pause before the next read if another Egret writes, or after an error.
const LOOK: Duration = Duration::from_secs(1);

/// Minimum time between two reads: what is committed in between is read together.
const GATHER: Duration = Duration::from_millis(5);

/// How long there must be no listener before the buffer restarts at the end of the feed, rather
/// than reading all changes made in between.
const QUIET: Duration = Duration::from_secs(5);

/// How often the flushed position is checked. The server flushes every 200 ms by itself.
const FLUSH_LOOK: Duration = Duration::from_millis(20);

/// How long to wait for that before forcing a flush: the server may delay flushing records written
/// after the last commit.
const FLUSH_WAIT: Duration = Duration::from_millis(500);

/// Statement timeout: all subscribers wait behind a statement.
const PATIENCE: &str = "SET statement_timeout = '10s'";

pub(crate) struct FeedTailer {
    keeper: Arc<OwnershipManager>,
    line: Mutex<Option<Arc<FeedConnection>>>,
    connecting: Turns<()>,
    news: watch::Sender<FeedEvent>,
    wanted: Notify,
}

/// Event for all listeners.
#[derive(Clone, Debug)]
enum FeedEvent {
    /// There may be further changes.
    More,
    /// Reading the feed failed.
    Failed(DocumentsError),
    /// The tailer was shut down.
    Over,
}

/// A listener for further changes. The feed is read while there is at least one.
pub(crate) struct FeedListener {
    news: watch::Receiver<FeedEvent>,
}

/// A connection with the state read through it. A new connection starts from nothing: it may lead
/// to another server, with fewer changes.
struct FeedConnection {
    feed: Feed,
    /// Changes up to this position are flushed.
    durable: AtomicI64,
    /// Serializes waiting for a flush.
    settling: Turns<()>,
    recent: Mutex<Option<RecentGroups>>,
}

/// The buffered groups, contiguous.
struct RecentGroups {
    groups: VecDeque<Arc<FeedGroup>>,
    /// Number of changes in all groups.
    changes: usize,
    /// The position before the first group.
    begins: FeedPosition,
}

#[derive(Default)]
struct FeedPage {
    groups: Vec<Arc<FeedGroup>>,
    /// Whether there are further groups.
    is_more: bool,
}

impl FeedTailer {
    pub(crate) fn new(keeper: Arc<OwnershipManager>) -> Self {
        Self {
            keeper,
            line: Mutex::default(),
            connecting: Turns::default(),
            news: watch::Sender::new(FeedEvent::More),
            wanted: Notify::new(),
        }
    }

    /// Reads the feed for the listeners, until shutdown.
    pub(crate) async fn read(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut reached = self.keeper.writer.position();
        while !*stopping.borrow() {
            tokio::select! {
                _ = stopping.changed() => {}
                () = self.once(&mut reached) => {}
            }
        }
        self.news.send_replace(FeedEvent::Over);
        *lock(&self.line) = None;
    }

    /// Registers a listener and wakes the reader.
    pub(crate) fn listen(&self) -> FeedListener {
        let news = self.news.subscribe();
        self.wanted.notify_one();
        FeedListener { news }
    }

    /// Position up to which the buffer has changes; 0 without a connection.
    pub(crate) fn reached(&self) -> FeedPosition {
        let line = self.current();
        line.and_then(|line| line.reached()).unwrap_or_default()
    }

    /// The last position of the feed; waits until it is flushed.
    pub(crate) async fn last(&self) -> Result<FeedPosition, DocumentsError> {
        self.line().await?.last().await
    }

    /// Groups after a position, in order, for listeners: not empty, unless the position is the end
    /// of the buffer.
    ///
    /// # Errors
    /// [`DocumentsError::ChangesGone`] and [`DocumentsError::ChangesAhead`].
    pub(crate) async fn after(
        &self,
        position: FeedPosition,
    ) -> Result<Vec<Arc<FeedGroup>>, DocumentsError> {
        let recent = self.current().and_then(|line| line.after(position));
        match recent {
            Some(groups) => Ok(groups),
            None => self.page(position).await,
        }
    }

    /// Groups after a position, read from the table: not empty, unless there are none.
    ///
    /// # Errors
    /// [`DocumentsError::ChangesGone`] and [`DocumentsError::ChangesAhead`].
    pub(crate) async fn page(
        &self,
        after: FeedPosition,
    ) -> Result<Vec<Arc<FeedGroup>>, DocumentsError> {
        let line = self.line().await?;
        let groups = line.read(after).await?.groups;
        let begins = groups.first().map(|group| group.before());
        if begins.is_none_or(|begins| begins > after) {
            let forgotten = line.feed.forgotten().await?;
            if after < forgotten {
                return Err(DocumentsError::ChangesGone { forgotten });
            }
        }
        if groups.is_empty() {
            // `written_lsn` is none on a replica, which may simply lag behind its primary.
            let (last, written) = line.feed.written().await?;
            if written.is_some() && after > last {
                return Err(DocumentsError::ChangesAhead { last });
            }
        }
        Ok(groups)
    }

    /// Reads once, then waits until there may be further changes.
    async fn once(&self, reached: &mut watch::Receiver<FeedPosition>) {
        self.until_wanted().await;
        let begun = Instant::now();
        // Writes from here on trigger another read.
        reached.mark_unchanged();
        match self.look().await {
            Ok(true) => {}
            Ok(false) => {
                self.until_more(reached).await;
                tokio::time::sleep_until(begun + GATHER).await;
            }
            Err(error) => {
                self.news.send_replace(FeedEvent::Failed(error));
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    async fn until_wanted(&self) {
        let since = Instant::now();
        while self.news.receiver_count() == 0 {
            self.wanted.notified().await;
        }
        if since.elapsed() >= QUIET
            && let Some(line) = self.current()
        {
            *lock(&line.recent) = None;
        }
    }

    async fn until_more(&self, reached: &mut watch::Receiver<FeedPosition>) {
        loop {
            let is_owner = self.keeper.standing() == OwnershipState::Owner;
            tokio::select! {
                _ = reached.changed() => return,
                () = tokio::time::sleep(LOOK) => if !is_owner {
                    return;
                }
            }
        }
    }

    /// Reads new groups into the buffer and notifies the listeners. Returns whether there are more.
    async fn look(&self) -> Result<bool, DocumentsError> {
        let line = self.line().await?;
        let Some(reached) = line.reached() else {
            let begins = line.last().await?;
            *lock(&line.recent) = Some(RecentGroups::none_after(begins));
            self.news.send_replace(FeedEvent::More);
            return Ok(false);
        };
        let page = line.read(reached).await?;
        if !page.groups.is_empty() {
            line.remember(page.groups);
            self.news.send_replace(FeedEvent::More);
        }
        Ok(page.is_more)
    }

    /// The connection, if it is open.
    fn current(&self) -> Option<Arc<FeedConnection>> {
        let line = lock(&self.line).clone();
        line.filter(|line| !line.feed.is_closed())
    }

    async fn line(&self) -> Result<Arc<FeedConnection>, DocumentsError> {
        if let Some(line) = self.current() {
            return Ok(line);
        }
        let _turn = self.connecting.lock().await;
        if let Some(line) = self.current() {
            return Ok(line);
        }
        let client = self.keeper.client().await?;
        client.batch_execute(SETTINGS).await?;
        client.batch_execute(PATIENCE).await?;
        let line = Arc::new(FeedConnection {
            feed: Feed::new(client).await?,
            durable: AtomicI64::new(0),
            settling: Turns::default(),
            recent: Mutex::default(),
        });
        *lock(&self.line) = Some(line.clone());
        Ok(line)
    }
}

impl FeedListener {
    /// Marks what is known now as seen; to be called before reading.
    pub(crate) fn begin(&mut self) {
        self.news.mark_unchanged();
    }

    /// Waits until there may be changes committed after [`Self::mark_seen`].
    ///
    /// # Errors
    /// The error of a failed read; [`DocumentsError::Stopping`] at shutdown.
    pub(crate) async fn wait(&mut self) -> Result<(), DocumentsError> {
        let is_over = matches!(*self.news.borrow(), FeedEvent::Over);
        if is_over || self.news.changed().await.is_err() {
            return Err(DocumentsError::Stopping);
        }
        let news = self.news.borrow().clone();
        match news {
            FeedEvent::More => Ok(()),
            FeedEvent::Failed(error) => Err(error),
            FeedEvent::Over => Err(DocumentsError::Stopping),
        }
    }
}

impl FeedConnection {
    fn reached(&self) -> Option<FeedPosition> {
        lock(&self.recent).as_ref().map(RecentGroups::reached)
    }

    /// The groups after a position; none if the buffer does not cover it.
    fn after(&self, position: FeedPosition) -> Option<Vec<Arc<FeedGroup>>> {
        let recent = lock(&self.recent);
        let has = |recent: &&RecentGroups| (recent.begins..=recent.reached()).contains(&position);
        let recent = recent.as_ref().filter(has)?;
        let first = recent
            .groups
            .partition_point(|group| group.position <= position);
        let groups = recent.groups.range(first..);
        Some(groups.take(GROUPS_TOGETHER as usize).cloned().collect())
    }

    /// Appends groups to the buffer.
    fn remember(&self, groups: Vec<Arc<FeedGroup>>) {
        if let Some(recent) = lock(&self.recent).as_mut() {
            groups.into_iter().for_each(|group| recent.push(group));
        }
    }

    /// The last position of the feed; waits until it is flushed.
    async fn last(&self) -> Result<FeedPosition, DocumentsError> {
        let (position, is_relaxed) = self.feed.last().await?;
        if is_relaxed {
            self.settle(position).await?;
        }
        Ok(position)
    }

    /// The next groups after a position. Returns those known to be flushed; if there are none,
    /// waits until all of them are.
    async fn read(&self, after: FeedPosition) -> Result<FeedPage, DocumentsError> {
        let end = FeedPosition(after.0.saturating_add(CHANGES_TOGETHER));
        let mut groups = self.feed.groups(after, GROUPS_TOGETHER, end).await?;
        let Some(last) = groups.last().map(|group| group.position) else {
            return Ok(FeedPage::default());
        };
        let mut is_more = groups.len() as i64 == GROUPS_TOGETHER || last >= end;
        let durable = self.durable();
        // A commit with full durability has flushed all earlier commits.
        let known = groups
            .iter()
            .rposition(|group| !group.is_relaxed || group.position <= durable);
        match known {
            None => self.settle(last).await?,
            Some(known) => {
                is_more |= known + 1 < groups.len();
                groups.truncate(known + 1);
                let position = groups[known].position;
                self.durable.fetch_max(position.0, Ordering::Relaxed);
            }
        }
        Ok(FeedPage {
            groups: groups.into_iter().map(Arc::new).collect(),
            is_more,
        })
    }

    /// Changes up to this position are known to be flushed.
    fn durable(&self) -> FeedPosition {
        FeedPosition(self.durable.load(Ordering::Relaxed))
    }

    /// Waits until all changes up to a position that was read are flushed.
    async fn settle(&self, position: FeedPosition) -> Result<(), DocumentsError> {
        let _turn = self.settling.lock().await;
        if self.durable() >= position {
            return Ok(());
        }
        let (seen, written) = self.feed.written().await?;
        if let Some(written) = written {
            let end = Instant::now() + FLUSH_WAIT;
            while self.feed.flushed().await? < written {
                if Instant::now() >= end {
                    self.feed.flush().await?;
                    break;
                }
                tokio::time::sleep(FLUSH_LOOK).await;
            }
        }
        self.durable.fetch_max(seen.0, Ordering::Relaxed);
        Ok(())
    }
}

impl RecentGroups {
    fn none_after(begins: FeedPosition) -> Self {
        Self {
            groups: VecDeque::new(),
            changes: 0,
            begins,
        }
    }

    fn reached(&self) -> FeedPosition {
        let last = self.groups.back();
        last.map_or(self.begins, |group| group.position)
    }

    fn push(&mut self, group: Arc<FeedGroup>) {
        self.changes += group.changes.len();
        self.groups.push_back(group);
        while self.changes > REMEMBERED_MAX
            && let Some(gone) = self.groups.pop_front()
        {
            self.changes -= gone.changes.len();
            self.begins = gone.position;
        }
    }
}
