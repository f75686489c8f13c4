//! Reads what becomes of documents, for all who follow: once for all of them, by one session that nobody else needs, and not at all where nobody
//! listens.
//!
//! While somebody does, groups are read as they come, and the last ones are remembered. Whoever is further behind reads by himself until he is not.
//! What a crash of the server may take back is told when it cannot any more: its positions would come again, with other changes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turns, Notify, watch};
use tokio::time::Instant;

use super::keeper::{Keeper, Standing};
use super::session::SETTINGS;
use crate::error::DocumentsError;
use crate::store::feed::{Feed, Group};

/// Groups that are read at a time.
const GROUPS_TOGETHER: i64 = 100;

/// Changes after which no other group is read at the same time.
const CHANGES_TOGETHER: i64 = 10_000;

/// Changes that are remembered; one takes 32 bytes.
const REMEMBERED_MAX: usize = 50_000;

/// How soon is looked again where another Egret writes, and where something failed.
const LOOK: Duration = Duration::from_secs(1);

/// How long after a look the next one comes, at least: what is committed meanwhile is read together.
const GATHER: Duration = Duration::from_millis(5);

/// How long nobody has to listen for it to begin anew at the last change, instead of reading all that came meanwhile.
const QUIET: Duration = Duration::from_secs(5);

/// How often is looked whether the disk has what was written. The server sees to that every 200 ms by itself.
const FLUSH_LOOK: Duration = Duration::from_millis(20);

/// How long that is waited for before the server is made to do so: what is written after a commit, and by others, it may leave for longer.
const FLUSH_WAIT: Duration = Duration::from_millis(500);

/// A statement that takes this long fails: others wait behind it.
const PATIENCE: &str = "SET statement_timeout = '10s'";

/// See the module.
pub struct Follower {
    keeper: Arc<Keeper>,
    line: Mutex<Option<Arc<Line>>>,
    /// Whose turn it is to connect.
    connecting: Turns<()>,
    news: watch::Sender<News>,
    /// Somebody listens.
    wanted: Notify,
}

/// What those who listen are told.
#[derive(Clone, Debug)]
enum News {
    /// There may be more than they have seen.
    More,
    /// It could not be seen whether there is.
    Failed(DocumentsError),
    /// They will not be told any more.
    Over,
}

/// Waits for what comes. As long as there is one, it is looked for what comes.
pub struct Listening {
    news: watch::Receiver<News>,
}

/// A session, and what is known by it. With another one all of that is found out anew: it may be to another server, which has less.
struct Line {
    feed: Feed,
    /// Up to this position the disk has all changes.
    durable: AtomicI64,
    /// Whose turn it is to see to that.
    settling: Turns<()>,
    recent: Mutex<Option<Recent>>,
}

/// The last groups, without a gap.
struct Recent {
    groups: VecDeque<Arc<Group>>,
    /// How many changes they have.
    changes: usize,
    /// The position before the first of them.
    begins: i64,
}

/// Some groups.
#[derive(Default)]
struct Page {
    groups: Vec<Arc<Group>>,
    /// Whether there are more after them.
    is_more: bool,
}

impl Follower {
    /// For a database.
    pub fn new(keeper: Arc<Keeper>) -> Self {
        Self {
            keeper,
            line: Mutex::default(),
            connecting: Turns::default(),
            news: watch::Sender::new(News::More),
            wanted: Notify::new(),
        }
    }

    /// Reads for those who listen, until everything stops.
    pub async fn read(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut reached = self.keeper.writer.reached();
        while !*stopping.borrow() {
            tokio::select! {
                _ = stopping.changed() => {}
                () = self.once(&mut reached) => {}
            }
        }
        self.news.send_replace(News::Over);
        *lock(&self.line) = None;
    }

    /// Begins to listen.
    pub fn listen(&self) -> Listening {
        let news = self.news.subscribe();
        self.wanted.notify_one();
        Listening { news }
    }

    /// Up to which position it is known what those who listen can be told.
    pub fn reached(&self) -> i64 {
        let line = self.current();
        line.and_then(|line| line.reached()).unwrap_or(0)
    }

    /// The position of the last change, when the disk has it.
    ///
    /// # Errors
    /// What the server says.
    pub async fn last(&self) -> Result<i64, DocumentsError> {
        self.line().await?.last().await
    }

    /// Groups after a position, in order, for those who listen: some at least, unless they have been told all that is known.
    ///
    /// # Errors
    /// What the server says; [`DocumentsError::ChangesGone`] and [`DocumentsError::ChangesAhead`].
    pub async fn after(&self, position: i64) -> Result<Vec<Arc<Group>>, DocumentsError> {
        let recent = self.current().and_then(|line| line.after(position));
        match recent {
            Some(groups) => Ok(groups),
            None => self.page(position).await,
        }
    }

    /// The same for everybody: some at least, unless there are none.
    ///
    /// # Errors
    /// What the server says; [`DocumentsError::ChangesGone`] and [`DocumentsError::ChangesAhead`].
    pub async fn page(&self, after: i64) -> Result<Vec<Arc<Group>>, DocumentsError> {
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
            // A server that follows another may only be behind it.
            let (last, written) = line.feed.written().await?;
            if written.is_some() && after > last {
                return Err(DocumentsError::ChangesAhead { last });
            }
        }
        Ok(groups)
    }

    /// Looks once, and waits until there may be more.
    async fn once(&self, reached: &mut watch::Receiver<i64>) {
        self.until_wanted().await;
        let begun = Instant::now();
        // What is written from here on is a reason to look again.
        reached.mark_unchanged();
        match self.look().await {
            Ok(true) => {}
            Ok(false) => {
                self.until_more(reached).await;
                tokio::time::sleep_until(begun + GATHER).await;
            }
            Err(error) => {
                self.news.send_replace(News::Failed(error));
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

    async fn until_more(&self, reached: &mut watch::Receiver<i64>) {
        loop {
            let is_owner = self.keeper.standing() == Standing::Owner;
            tokio::select! {
                _ = reached.changed() => return,
                () = tokio::time::sleep(LOOK) => if !is_owner {
                    return;
                }
            }
        }
    }

    /// Reads what has come, and says so. Returns whether there is more.
    async fn look(&self) -> Result<bool, DocumentsError> {
        let line = self.line().await?;
        let Some(reached) = line.reached() else {
            let begins = line.last().await?;
            *lock(&line.recent) = Some(Recent::none_after(begins));
            self.news.send_replace(News::More);
            return Ok(false);
        };
        let page = line.read(reached).await?;
        if !page.groups.is_empty() {
            line.remember(page.groups);
            self.news.send_replace(News::More);
        }
        Ok(page.is_more)
    }

    /// The session that there is.
    fn current(&self) -> Option<Arc<Line>> {
        let line = lock(&self.line).clone();
        line.filter(|line| !line.feed.is_closed())
    }

    async fn line(&self) -> Result<Arc<Line>, DocumentsError> {
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
        let line = Arc::new(Line {
            feed: Feed::new(client).await?,
            durable: AtomicI64::new(0),
            settling: Turns::default(),
            recent: Mutex::default(),
        });
        *lock(&self.line) = Some(line.clone());
        Ok(line)
    }
}

impl Listening {
    /// Waits for what comes after this: for those who are about to see what there is.
    pub fn begin(&mut self) {
        self.news.mark_unchanged();
    }

    /// Returns as soon as there may be more than there was when it began.
    ///
    /// # Errors
    /// It cannot be seen whether there is; [`DocumentsError::Stopping`]: nobody looks any more.
    pub async fn wait(&mut self) -> Result<(), DocumentsError> {
        let is_over = matches!(*self.news.borrow(), News::Over);
        if is_over || self.news.changed().await.is_err() {
            return Err(DocumentsError::Stopping);
        }
        let news = self.news.borrow().clone();
        match news {
            News::More => Ok(()),
            News::Failed(error) => Err(error),
            News::Over => Err(DocumentsError::Stopping),
        }
    }
}

impl Line {
    fn reached(&self) -> Option<i64> {
        lock(&self.recent).as_ref().map(Recent::reached)
    }

    /// The groups after a position; none: they are not remembered.
    fn after(&self, position: i64) -> Option<Vec<Arc<Group>>> {
        let recent = lock(&self.recent);
        let has = |recent: &&Recent| (recent.begins..=recent.reached()).contains(&position);
        let recent = recent.as_ref().filter(has)?;
        let first = recent
            .groups
            .partition_point(|group| group.position <= position);
        let groups = recent.groups.range(first..);
        Some(groups.take(GROUPS_TOGETHER as usize).cloned().collect())
    }

    /// Remembers the groups that come after those that are remembered.
    fn remember(&self, groups: Vec<Arc<Group>>) {
        if let Some(recent) = lock(&self.recent).as_mut() {
            groups.into_iter().for_each(|group| recent.push(group));
        }
    }

    /// The position of the last change, when the disk has it.
    async fn last(&self) -> Result<i64, DocumentsError> {
        let (position, is_relaxed) = self.feed.last().await?;
        if is_relaxed {
            self.settle(position).await?;
        }
        Ok(position)
    }

    /// The next groups after a position: those that the disk is known to have, or where these are none all, when it has them.
    async fn read(&self, after: i64) -> Result<Page, DocumentsError> {
        let end = after.saturating_add(CHANGES_TOGETHER);
        let mut groups = self.feed.groups(after, GROUPS_TOGETHER, end).await?;
        let Some(last) = groups.last().map(|group| group.position) else {
            return Ok(Page::default());
        };
        let mut is_more = groups.len() as i64 == GROUPS_TOGETHER || last >= end;
        let durable = self.durable.load(Ordering::Relaxed);
        // A commit that was waited for has the disk have all that was committed before it.
        let known = groups
            .iter()
            .rposition(|group| !group.is_relaxed || group.position <= durable);
        match known {
            None => self.settle(last).await?,
            Some(known) => {
                is_more |= known + 1 < groups.len();
                groups.truncate(known + 1);
                let position = groups[known].position;
                self.durable.fetch_max(position, Ordering::Relaxed);
            }
        }
        Ok(Page {
            groups: groups.into_iter().map(Arc::new).collect(),
            is_more,
        })
    }

    /// Waits until the disk has all changes up to a position, which has been seen.
    async fn settle(&self, position: i64) -> Result<(), DocumentsError> {
        let _turn = self.settling.lock().await;
        if self.durable.load(Ordering::Relaxed) >= position {
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
        self.durable.fetch_max(seen, Ordering::Relaxed);
        Ok(())
    }
}

impl Recent {
    fn none_after(begins: i64) -> Self {
        Self {
            groups: VecDeque::new(),
            changes: 0,
            begins,
        }
    }

    fn reached(&self) -> i64 {
        let last = self.groups.back();
        last.map_or(self.begins, |group| group.position)
    }

    fn push(&mut self, group: Arc<Group>) {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
