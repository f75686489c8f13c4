//! The store of attachments: `attachments/<two digits>/<task>/<lease>.<name>`.
//!
//! A file gets its name when it is complete and on disk. It is kept while its lease holds the task,
//! or has completed it; else it is an orphan. Orphans of ended leases are looked for from time to
//! time, and after a start among all files; nothing else walks over the files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use egret_base::{LimitExceeded, TenantShare};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::error::{QueueError, io};
use crate::model::TaskId;

/// Prefix of the name of a file that is being written.
const UNFINISHED: &str = ".new-";

pub(crate) struct AttachmentStore {
    root: PathBuf,
    /// Limits of bytes for all tenants together, and for one.
    share: TenantShare,
    stored: Mutex<AttachmentUsage>,
    /// Leases that may have left files: the task and the lease's token.
    pub doubtful: Mutex<BTreeSet<(TaskId, u64)>>,
    /// Distinguishes files that are being written.
    uploads: AtomicU64,
    gone: UnboundedSender<TaskId>,
    pub janitor: Mutex<Option<UnboundedReceiver<TaskId>>>,
}

impl std::fmt::Debug for AttachmentStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").finish_non_exhaustive()
    }
}

/// Bytes of files, including those that are being written.
#[derive(Default)]
struct AttachmentUsage {
    all: u64,
    by_tenant: HashMap<Arc<str>, u64>,
    /// Owners of the tasks that have files.
    owners: HashMap<TaskId, Owner>,
    /// Number of changes of owners.
    notes: u64,
}

/// The tenant that owns a task.
struct Owner {
    tenant: Arc<str>,
    /// Number of the change that set it.
    note: u64,
}

impl AttachmentUsage {
    /// The owner of a task; of an unknown one, no tenant.
    fn owner(&self, id: TaskId) -> Arc<str> {
        let owner = self.owners.get(&id);
        owner.map_or_else(Arc::default, |owner| owner.tenant.clone())
    }

    fn add(&mut self, owner: Arc<str>, bytes: u64) {
        self.all += bytes;
        *self.by_tenant.entry(owner).or_default() += bytes;
    }
}

impl AttachmentStore {
    pub(crate) fn new(queue_directory: &Path, share: TenantShare) -> Self {
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

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn directory_of(&self, id: TaskId) -> PathBuf {
        let spread = id.number() & 0xff;
        self.root.join(format!("{spread:02x}/{id}"))
    }

    pub(crate) fn path_of(&self, id: TaskId, token: u64, name: &str) -> PathBuf {
        self.directory_of(id).join(format!("{token:016x}.{name}"))
    }

    /// A path for a file that is being written.
    pub(crate) fn unfinished(&self, id: TaskId) -> PathBuf {
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        self.directory_of(id).join(format!("{UNFINISHED}{number}"))
    }

    /// Marks a lease that may leave files behind.
    pub(crate) fn doubt(&self, id: TaskId, token: u64) {
        lock(&self.doubtful).insert((id, token));
    }

    /// Queues the files of a deleted task for deletion.
    pub(crate) fn forget(&self, id: TaskId) {
        // While the engine stops there is no receiver; the next start finds them.
        let _ = self.gone.send(id);
    }

    /// Sets the tenant of a task, before it has files.
    pub(crate) fn note_owner(&self, id: TaskId, tenant: &str) {
        let mut stored = lock(&self.stored);
        let known = stored.by_tenant.get_key_value(tenant);
        let tenant = known.map_or_else(|| tenant.into(), |(owner, _)| owner.clone());
        stored.notes += 1;
        let note = stored.notes;
        stored.owners.insert(id, Owner { tenant, note });
    }

    /// Counts bytes that are about to be written for a task.
    pub(crate) fn reserve(&self, id: TaskId, bytes: u64) -> Result<(), LimitExceeded> {
        let mut stored = lock(&self.stored);
        let owner = stored.owner(id);
        let own = stored.by_tenant.get(&owner).copied().unwrap_or_default();
        self.share.check(stored.all, own, bytes)?;
        stored.add(owner, bytes);
        Ok(())
    }

    pub(crate) fn release(&self, id: TaskId, bytes: u64) {
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

    /// Bytes of files by tenant; of unknown tasks, of tenant "".
    pub(crate) fn bytes_by_tenant(&self) -> BTreeMap<Arc<str>, u64> {
        let stored = lock(&self.stored);
        let bytes = stored.by_tenant.iter();
        bytes
            .map(|(owner, bytes)| (owner.clone(), *bytes))
            .collect()
    }

    /// Removes a task's directory, unless there is a file in it.
    fn remove_directory(&self, id: TaskId) {
        // Every chunk of every upload locks the usage, so the disk is accessed without the lock. An
        // upload that creates the directory again meanwhile sets its owner again.
        let noted = |stored: &AttachmentUsage| stored.owners.get(&id).map(|owner| owner.note);
        let before = noted(&lock(&self.stored));
        if fs::remove_dir(self.directory_of(id)).is_err() {
            return;
        }
        let mut stored = lock(&self.stored);
        if noted(&stored) == before {
            stored.owners.remove(&id);
        }
    }

    /// Names of the files of a lease.
    pub(crate) fn names_of(&self, id: TaskId, token: u64) -> std::io::Result<Vec<String>> {
        let prefix = format!("{token:016x}.");
        let names = names_in(&self.directory_of(id))?.into_iter();
        let named = names.filter_map(|name| name.strip_prefix(&prefix).map(str::to_owned));
        Ok(named.collect())
    }

    /// Scans all files, before any attachment can be added. `tenant_of` returns the tenant of a
    /// task.
    ///
    /// # Errors
    /// [`QueueError::Io`].
    pub(crate) fn survey(
        &self,
        tenant_of: impl Fn(TaskId) -> Option<Box<str>>,
    ) -> Result<(), QueueError> {
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
                // The file is not one that Egret writes.
                _ => {
                    tracing::warn!(path = %path.display(), "ignoring an unexpected file in the attachments directory")
                }
            }
        }
        // Fails unless it is empty.
        match id {
            Some(id) => self.remove_directory(id),
            None => drop(fs::remove_dir(directory)),
        }
        Ok(())
    }

    /// Deletes the files of a lease that are not named in `kept`.
    pub(crate) fn clear(&self, id: TaskId, token: u64, kept: &[String]) -> std::io::Result<()> {
        for name in self.names_of(id, token)? {
            if !kept.contains(&name) {
                self.remove(id, &self.path_of(id, token, &name))?;
            }
        }
        self.remove_directory(id);
        Ok(())
    }

    /// Deletes all files of a task.
    pub(crate) fn clear_all(&self, id: TaskId) -> std::io::Result<()> {
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
    pub(crate) fn remove(&self, id: TaskId, path: &Path) -> std::io::Result<()> {
        // Once the file is deleted, its directory and owner may be removed.
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

/// Syncs the names in a task's directory, and the directories on the way to it.
pub(crate) fn sync_directories(shelf: &AttachmentStore, id: TaskId) -> std::io::Result<()> {
    // Its own, that of its two digits, that of all attachments, and the queue's.
    for directory in shelf.directory_of(id).ancestors().take(4) {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}
