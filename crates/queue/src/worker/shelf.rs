//! Where attachments lie: `attachments/<two digits>/<task>/<lease>.<name>`.
//!
//! A file gets its name when it is whole and on disk. It is kept while its lease holds the task, or has
//! completed it; else it is an orphan. Those that an ended lease may have left are looked for from time to
//! time, and after a start among all that is there; nothing else walks over the files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::{Condition, LimitExceeded, TenantShare};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::api::tasks::Detail;
use crate::api::{Queues, lock};
use crate::core::state::Fate;
use crate::error::{QueueError, io};
use crate::model::{Lease, TaskId};

/// How often ended leases are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Leases that a partition is asked about at once.
const ASKED_MAX: usize = 1_000;

/// Tasks whose files are deleted before anything else is done.
const GONE_MAX: usize = 256;

/// Begins the name of a file that is being written.
const UNFINISHED: &str = ".new-";

/// See the module.
pub(crate) struct Shelf {
    root: PathBuf,
    /// What all tenants together may have on it, and one.
    share: TenantShare,
    stored: Mutex<Stored>,
    /// Leases that may have left something: the task, the lease's token.
    doubtful: Mutex<BTreeSet<(TaskId, u64)>>,
    /// Distinguishes files that are being written.
    uploads: AtomicU64,
    gone: UnboundedSender<TaskId>,
    janitor: Mutex<Option<UnboundedReceiver<TaskId>>>,
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").finish_non_exhaustive()
    }
}

/// Bytes of files, those that are being written included.
#[derive(Default)]
struct Stored {
    all: u64,
    by_tenant: HashMap<Arc<str>, u64>,
    /// Whose the tasks are that have files.
    owners: HashMap<TaskId, Owner>,
    /// Times that an owner was noted.
    notes: u64,
}

/// Whose a task is.
struct Owner {
    tenant: Arc<str>,
    /// Which note says so.
    note: u64,
}

impl Stored {
    /// The owner of a task; of one that nobody knows, no tenant.
    fn owner(&self, id: TaskId) -> Arc<str> {
        let owner = self.owners.get(&id);
        owner.map_or_else(Arc::default, |owner| owner.tenant.clone())
    }

    fn add(&mut self, owner: Arc<str>, bytes: u64) {
        self.all += bytes;
        *self.by_tenant.entry(owner).or_default() += bytes;
    }
}

impl Shelf {
    pub fn new(queue_directory: &Path, share: TenantShare) -> Self {
        let (gone, janitor) = unbounded_channel();
        Self {
            root: queue_directory.join("attachments"),
            share,
            stored: Mutex::default(),
            doubtful: Mutex::default(),
            uploads: AtomicU64::new(0),
            gone,
            janitor: Mutex::new(Some(janitor)),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn directory_of(&self, id: TaskId) -> PathBuf {
        let spread = id.number() & 0xff;
        self.root.join(format!("{spread:02x}/{id}"))
    }

    pub fn path_of(&self, id: TaskId, token: u64, name: &str) -> PathBuf {
        self.directory_of(id).join(format!("{token:016x}.{name}"))
    }

    /// A path for a file that is being written.
    pub fn unfinished(&self, id: TaskId) -> PathBuf {
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        self.directory_of(id).join(format!("{UNFINISHED}{number}"))
    }

    /// Notes that a lease may leave something behind.
    pub fn doubt(&self, id: TaskId, token: u64) {
        lock(&self.doubtful).insert((id, token));
    }

    /// A task has gone, for good: so do its files.
    pub fn forget(&self, id: TaskId) {
        // While the engine stops nobody listens; the next start finds them.
        let _ = self.gone.send(id);
    }

    /// Notes whose a task is, before there are files of it.
    pub fn note_owner(&self, id: TaskId, tenant: &str) {
        let mut stored = lock(&self.stored);
        let known = stored.by_tenant.get_key_value(tenant);
        let tenant = known.map_or_else(|| tenant.into(), |(owner, _)| owner.clone());
        stored.notes += 1;
        let note = stored.notes;
        stored.owners.insert(id, Owner { tenant, note });
    }

    /// Counts bytes that are about to be written for a task.
    pub fn reserve(&self, id: TaskId, bytes: u64) -> Result<(), LimitExceeded> {
        let mut stored = lock(&self.stored);
        let owner = stored.owner(id);
        let own = stored.by_tenant.get(&owner).copied().unwrap_or_default();
        self.share.check(stored.all, own, bytes)?;
        stored.add(owner, bytes);
        Ok(())
    }

    pub fn release(&self, id: TaskId, bytes: u64) {
        let owner = lock(&self.stored).owner(id);
        self.release_of(&owner, bytes);
    }

    fn release_of(&self, owner: &Arc<str>, bytes: u64) {
        let mut stored = lock(&self.stored);
        stored.all -= bytes;
        if let Some(own) = stored.by_tenant.get_mut(owner) {
            *own -= bytes;
            if *own == 0 {
                stored.by_tenant.remove(owner);
            }
        }
    }

    /// Bytes of files by tenant; of tasks that nobody knows, of tenant "".
    pub fn bytes_by_tenant(&self) -> BTreeMap<Arc<str>, u64> {
        let stored = lock(&self.stored);
        let bytes = stored.by_tenant.iter();
        bytes
            .map(|(owner, bytes)| (owner.clone(), *bytes))
            .collect()
    }

    /// Removes a task's directory, unless there is a file in it.
    fn remove_directory(&self, id: TaskId) {
        // Every chunk of every upload needs what is stored, so the disk is waited for without it. An upload that
        // makes the directory anew meanwhile notes its owner anew.
        let noted = |stored: &Stored| stored.owners.get(&id).map(|owner| owner.note);
        let before = noted(&lock(&self.stored));
        if fs::remove_dir(self.directory_of(id)).is_err() {
            return;
        }
        let mut stored = lock(&self.stored);
        if noted(&stored) == before {
            stored.owners.remove(&id);
        }
    }

    /// Names of what a lease has left on the shelf.
    pub fn names_of(&self, id: TaskId, token: u64) -> std::io::Result<Vec<String>> {
        let prefix = format!("{token:016x}.");
        let names = names_in(&self.directory_of(id))?.into_iter();
        let named = names.filter_map(|name| name.strip_prefix(&prefix).map(str::to_owned));
        Ok(named.collect())
    }

    /// Looks at everything that is there: before anybody can put something there. `tenant_of` finds out whose a
    /// task is.
    ///
    /// # Errors
    /// [`QueueError::Io`].
    pub fn survey(&self, tenant_of: impl Fn(TaskId) -> Option<Box<str>>) -> Result<(), QueueError> {
        for spread in names_in(&self.root).map_err(io("reading", &self.root))? {
            let spread = self.root.join(spread);
            for task in names_in(&spread).map_err(io("reading", &spread))? {
                let directory = spread.join(&task);
                let id = task.parse().ok();
                if let Some(id) = id
                    && let Some(tenant) = tenant_of(id)
                {
                    self.note_owner(id, &tenant);
                }
                self.survey_task(&directory, id)
                    .map_err(io("examining", &directory))?;
            }
        }
        Ok(())
    }

    fn survey_task(&self, directory: &Path, id: Option<TaskId>) -> std::io::Result<()> {
        for name in names_in(directory)? {
            let path = directory.join(&name);
            let token = name.split_once('.').map(|(token, _)| token);
            match (id, token.map(|token| u64::from_str_radix(token, 16))) {
                (Some(id), Some(Ok(token))) => {
                    let bytes = fs::metadata(&path)?.len();
                    let mut stored = lock(&self.stored);
                    let owner = stored.owner(id);
                    stored.add(owner, bytes);
                    drop(stored);
                    self.doubt(id, token);
                }
                _ if name.starts_with(UNFINISHED) => fs::remove_file(&path)?,
                // Nobody knows who put it there.
                _ => tracing::warn!(path = %path.display(), "a file among the attachments is none"),
            }
        }
        // Refused unless it is empty.
        match id {
            Some(id) => self.remove_directory(id),
            None => drop(fs::remove_dir(directory)),
        }
        Ok(())
    }

    /// Deletes what a lease has left, but not what is named in `kept`.
    pub fn clear(&self, id: TaskId, token: u64, kept: &[String]) -> std::io::Result<()> {
        for name in self.names_of(id, token)? {
            if !kept.contains(&name) {
                self.remove(id, &self.path_of(id, token, &name))?;
            }
        }
        self.remove_directory(id);
        Ok(())
    }

    /// Deletes everything of a task.
    fn clear_all(&self, id: TaskId) -> std::io::Result<()> {
        let directory = self.directory_of(id);
        for name in names_in(&directory)? {
            if !name.starts_with(UNFINISHED) {
                self.remove(id, &directory.join(name))?;
            }
        }
        self.remove_directory(id);
        Ok(())
    }

    /// Deletes a file of a task, if it is there.
    pub fn remove(&self, id: TaskId, path: &Path) -> std::io::Result<()> {
        // Once the file is gone, the directory may go with the note of its owner.
        let owner = lock(&self.stored).owner(id);
        let removed = fs::metadata(path).and_then(|known| {
            fs::remove_file(path)?;
            Ok(known.len())
        });
        match removed {
            Ok(bytes) => {
                self.release_of(&owner, bytes);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Names in a directory; none where there is no such directory.
fn names_in(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// Makes the names in a task's directory last, and the directories on the way to it.
pub(crate) fn sync_directories(shelf: &Shelf, id: TaskId) -> std::io::Result<()> {
    // Its own, that of its two digits, that of all attachments, and the queue's.
    for directory in shelf.directory_of(id).ancestors().take(4) {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

impl Queues {
    /// Deletes the files of tasks that are gone, and of leases that are over, for as long as the engine runs.
    pub(super) fn begin_upkeep_of_shelf(&self) {
        let Some(mut gone) = lock(&self.inner.shelf.janitor).take() else {
            return;
        };
        // The engine holds the task, so the task must not hold the engine.
        let inner = std::sync::Arc::downgrade(&self.inner);
        let upkeep = tokio::spawn(async move {
            let failing = Condition::new("queue_attachments_not_deleted", "queue");
            let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
            loop {
                let mut ids = Vec::new();
                let sweep = tokio::select! {
                    biased;
                    received = gone.recv_many(&mut ids, GONE_MAX) => {
                        if received == 0 {
                            return;
                        }
                        false
                    }
                    _ = sweeps.tick() => true,
                };
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                let queues = Queues { inner };
                let done = match sweep {
                    true => queues.sweep_attachments().await,
                    false => queues.clear_gone(ids).await,
                };
                match done {
                    Ok(()) => failing.recover("attachments of ended tasks are deleted again"),
                    Err(error) => {
                        let message = "attachments of ended tasks are left until the next start";
                        failing.fail(error, message);
                    }
                }
            }
        });
        *lock(&self.inner.shelf_upkeep) = Some(upkeep);
    }

    async fn clear_gone(&self, ids: Vec<TaskId>) -> Result<(), QueueError> {
        self.on_shelf(move |shelf| ids.into_iter().try_for_each(|id| shelf.clear_all(id)))
            .await
    }

    /// Has something done to the files, where it may block.
    pub(crate) async fn on_shelf<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Shelf) -> std::io::Result<R> + Send + 'static,
    ) -> Result<R, QueueError> {
        let shelf = self.inner.shelf.clone();
        let done =
            tokio::task::spawn_blocking(move || work(&shelf).map_err(io("changing", shelf.root())));
        done.await.map_err(|_| QueueError::Stopping)?
    }

    /// Deletes what leases have left that are over.
    ///
    /// # Errors
    /// [`QueueError::Io`], and those of asking partitions.
    pub async fn sweep_attachments(&self) -> Result<(), QueueError> {
        let doubtful: Vec<(TaskId, u64)> =
            lock(&self.inner.shelf.doubtful).iter().copied().collect();
        let mut by_partition: BTreeMap<usize, Vec<(TaskId, u64)>> = BTreeMap::new();
        for (id, token) in doubtful {
            let partition = self.inner.partition_of(id.shard())?;
            by_partition.entry(partition).or_default().push((id, token));
        }
        for (partition, leases) in by_partition {
            for some in leases.chunks(ASKED_MAX) {
                self.sweep_some(partition, some.to_vec()).await?;
            }
        }
        Ok(())
    }

    async fn sweep_some(
        &self,
        partition: usize,
        leases: Vec<(TaskId, u64)>,
    ) -> Result<(), QueueError> {
        let asked = leases.clone();
        let fates = self.inner.ask(partition, move |turn| {
            let fates = asked
                .iter()
                .map(|(id, token)| turn.state.fate_of(*id, *token));
            fates.collect::<Vec<Fate>>()
        });
        for ((id, token), fate) in leases.into_iter().zip(fates.await?) {
            let kept = match fate {
                Fate::Held => continue,
                Fate::Over => Vec::new(),
                Fate::Completed => match self.any_task(id, Detail::Whole).await {
                    Ok(view) => view.attachments.into_iter().map(|one| one.name).collect(),
                    // It has gone meanwhile.
                    Err(QueueError::TaskNotFound { .. }) => Vec::new(),
                    Err(error) => return Err(error),
                },
            };
            self.on_shelf(move |shelf| shelf.clear(id, token, &kept))
                .await?;
            lock(&self.inner.shelf.doubtful).remove(&(id, token));
        }
        Ok(())
    }

    /// What has become of a lease of a task, which must be of this tenant.
    pub(crate) async fn fate_of(
        &self,
        tenant: &str,
        id: TaskId,
        lease: Lease,
    ) -> Result<Fate, QueueError> {
        if !lease.is_of(id) {
            return Err(QueueError::LeaseLost);
        }
        let (tenant, partition) = (tenant.to_owned(), self.inner.partition_of(id.shard())?);
        self.inner
            .ask(partition, move |turn| {
                match turn.state.queue_of(id.number()) {
                    Some(queue) if *queue.tenant == *tenant => turn.state.fate_of(id, lease.token),
                    _ => Fate::Over,
                }
            })
            .await
    }
}
