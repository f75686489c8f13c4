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

use crate::error::{QueueError, io_error};
use crate::model::TaskId;

/// Prefix of the name of a file that is being written.
const PARTIAL_PREFIX: &str = ".new-";

pub(crate) struct AttachmentStore {
    root: PathBuf,
    /// Limits of bytes for all tenants together, and for one.
    share: TenantShare,
    usage: Mutex<AttachmentUsage>,
    /// Leases that may have left files: the task and the lease's token.
    pub leases_to_check: Mutex<BTreeSet<(TaskId, u64)>>,
    /// Distinguishes files that are being written.
    uploads: AtomicU64,
    deleted_tasks: UnboundedSender<TaskId>,
    pub deleted_task_receiver: Mutex<Option<UnboundedReceiver<TaskId>>>,
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
    owner_changes: u64,
}

/// The tenant that owns a task.
struct Owner {
    tenant: Arc<str>,
    /// Number of the change that set it.
    generation: u64,
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
        let (deleted_tasks, deleted_task_receiver) = unbounded_channel();
        Self {
            root: queue_directory.join("attachments"),
            share,
            usage: Mutex::default(),
            leases_to_check: Mutex::default(),
            uploads: AtomicU64::new(0),
            deleted_tasks,
            deleted_task_receiver: Mutex::new(Some(deleted_task_receiver)),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn task_directory(&self, id: TaskId) -> PathBuf {
        let shard_directory = id.number() & 0xff;
        self.root.join(format!("{shard_directory:02x}/{id}"))
    }

    pub(crate) fn attachment_path(&self, id: TaskId, token: u64, name: &str) -> PathBuf {
        self.task_directory(id).join(format!("{token:016x}.{name}"))
    }

    /// A path for a file that is being written.
    pub(crate) fn partial_path(&self, id: TaskId) -> PathBuf {
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        self.task_directory(id).join(format!("{PARTIAL_PREFIX}{number}"))
    }

    /// Marks a lease that may leave files behind.
    pub(crate) fn mark_for_check(&self, id: TaskId, token: u64) {
        lock(&self.leases_to_check).insert((id, token));
    }

    /// Queues the files of a deleted task for deletion.
    pub(crate) fn queue_deletion(&self, id: TaskId) {
        // While the engine stops there is no receiver; the next start finds them.
        let _ = self.deleted_tasks.send(id);
    }

    /// Sets the tenant of a task, before it has files.
    pub(crate) fn set_owner(&self, id: TaskId, tenant: &str) {
        let mut usage = lock(&self.usage);
        let known = usage.by_tenant.get_key_value(tenant);
        let tenant = known.map_or_else(|| tenant.into(), |(owner, _)| owner.clone());
        usage.owner_changes += 1;
        let generation = usage.owner_changes;
        usage.owners.insert(id, Owner { tenant, generation });
    }

    /// Counts bytes that are about to be written for a task.
    pub(crate) fn reserve(&self, id: TaskId, bytes: u64) -> Result<(), LimitExceeded> {
        let mut usage = lock(&self.usage);
        let owner = usage.owner(id);
        let tenant_bytes = usage.by_tenant.get(&owner).copied().unwrap_or_default();
        self.share.check(usage.all, tenant_bytes, bytes)?;
        usage.add(owner, bytes);
        Ok(())
    }

    pub(crate) fn release(&self, id: TaskId, bytes: u64) {
        let owner = lock(&self.usage).owner(id);
        self.release_owner_bytes(&owner, bytes);
    }

    fn release_owner_bytes(&self, owner: &Arc<str>, bytes: u64) {
        let mut usage = lock(&self.usage);
        usage.all -= bytes;
        if let Some(tenant_bytes) = usage.by_tenant.get_mut(owner) {
            *tenant_bytes -= bytes;
            if *tenant_bytes == 0 {
                usage.by_tenant.remove(owner);
            }
        }
    }

    /// Bytes of files by tenant; of unknown tasks, of tenant "".
    pub(crate) fn bytes_by_tenant(&self) -> BTreeMap<Arc<str>, u64> {
        let usage = lock(&self.usage);
        let bytes = usage.by_tenant.iter();
        bytes.map(|(owner, bytes)| (owner.clone(), *bytes)).collect()
    }

    /// Removes a task's directory, unless there is a file in it.
    fn remove_empty_directory(&self, id: TaskId) {
        // Every chunk of every upload locks the usage, so the disk is accessed without the lock. An
        // upload that creates the directory again meanwhile sets its owner again.
        let owner_generation =
            |stored: &AttachmentUsage| stored.owners.get(&id).map(|owner| owner.generation);
        let generation_before = owner_generation(&lock(&self.usage));
        if fs::remove_dir(self.task_directory(id)).is_err() {
            return;
        }
        let mut usage = lock(&self.usage);
        if owner_generation(&usage) == generation_before {
            usage.owners.remove(&id);
        }
    }

    /// Names of the files of a lease.
    pub(crate) fn attachment_names(&self, id: TaskId, token: u64) -> std::io::Result<Vec<String>> {
        let prefix = format!("{token:016x}.");
        let names = list_names(&self.task_directory(id))?.into_iter();
        let named = names.filter_map(|name| name.strip_prefix(&prefix).map(str::to_owned));
        Ok(named.collect())
    }

    /// Scans all files, before any attachment can be added. `tenant_of` returns the tenant of a
    /// task.
    ///
    /// # Errors
    /// [`QueueError::Io`].
    pub(crate) fn scan(
        &self,
        tenant_of: impl Fn(TaskId) -> Option<Box<str>>,
    ) -> Result<(), QueueError> {
        for shard_name in list_names(&self.root).map_err(io_error("reading", &self.root))? {
            let shard_directory = self.root.join(shard_name);
            for task in
                list_names(&shard_directory).map_err(io_error("reading", &shard_directory))?
            {
                let directory = shard_directory.join(&task);
                let id = task.parse().ok();
                if let Some(id) = id
                    && let Some(tenant) = tenant_of(id)
                {
                    self.set_owner(id, &tenant);
                }
                self.scan_task(&directory, id).map_err(io_error("examining", &directory))?;
            }
        }
        Ok(())
    }

    fn scan_task(&self, directory: &Path, id: Option<TaskId>) -> std::io::Result<()> {
        for name in list_names(directory)? {
            let path = directory.join(&name);
            let token = name.split_once('.').map(|(token, _)| token);
            match (id, token.map(|token| u64::from_str_radix(token, 16))) {
                (Some(id), Some(Ok(token))) => {
                    let bytes = fs::metadata(&path)?.len();
                    let mut usage = lock(&self.usage);
                    let owner = usage.owner(id);
                    usage.add(owner, bytes);
                    drop(usage);
                    self.mark_for_check(id, token);
                }
                _ if name.starts_with(PARTIAL_PREFIX) => fs::remove_file(&path)?,
                // The file is not one that Egret writes.
                _ => {
                    tracing::warn!(path = %path.display(), "ignoring an unexpected file in the attachments directory")
                }
            }
        }
        // Fails unless it is empty.
        match id {
            Some(id) => self.remove_empty_directory(id),
            None => drop(fs::remove_dir(directory)),
        }
        Ok(())
    }

    /// Deletes the files of a lease that are not named in `kept`.
    pub(crate) fn delete_except(
        &self,
        id: TaskId,
        token: u64,
        kept: &[String],
    ) -> std::io::Result<()> {
        for name in self.attachment_names(id, token)? {
            if !kept.contains(&name) {
                self.delete_file(id, &self.attachment_path(id, token, &name))?;
            }
        }
        self.remove_empty_directory(id);
        Ok(())
    }

    /// Deletes all files of a task.
    pub(crate) fn delete_all(&self, id: TaskId) -> std::io::Result<()> {
        let directory = self.task_directory(id);
        for name in list_names(&directory)? {
            if !name.starts_with(PARTIAL_PREFIX) {
                self.delete_file(id, &directory.join(name))?;
            }
        }
        self.remove_empty_directory(id);
        Ok(())
    }

    /// Deletes a file of a task, if it is there.
    pub(crate) fn delete_file(&self, id: TaskId, path: &Path) -> std::io::Result<()> {
        // Once the file is deleted, its directory and owner may be removed.
        let owner = lock(&self.usage).owner(id);
        let removed = fs::metadata(path).and_then(|metadata| {
            fs::remove_file(path)?;
            Ok(metadata.len())
        });
        match removed {
            Ok(bytes) => {
                self.release_owner_bytes(&owner, bytes);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Names in a directory; none where there is no such directory.
fn list_names(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// Syncs the names in a task's directory, and the directories on the way to it.
pub(crate) fn sync_directories(store: &AttachmentStore, id: TaskId) -> std::io::Result<()> {
    // Its own, that of its two digits, that of all attachments, and the queue's.
    for directory in store.task_directory(id).ancestors().take(4) {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}
