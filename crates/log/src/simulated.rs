//! A disk in memory that forgets, fills up and fails on demand, for simulators of the log and of
//! what stands on it.
//!
//! What it promises is what POSIX does and no more: content is durable after `sync_data` of its
//! file, names after `sync_directory`. At a loss of power each sector of what was not synced is
//! found as it was after any of the writes to it, or in the middle of one, whatever became of the
//! others; of the changes of names, the first so many are found, as a journaling file system has
//! it, or just any.

mod chance;
mod inode;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile};
pub use chance::SplitMix64;
use inode::Inode;

/// Something that goes wrong once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next write takes only this many bytes, which is not an error.
    ShortWrite(usize),
    /// The next write takes only this many bytes and the one after it finds no space.
    Full(usize),
    /// The next write fails after this many bytes.
    WriteError(usize),
    /// The next sync of a file fails. As in Linux, what it should have written is then found in
    /// memory, counts as written, and is not.
    SyncError,
    /// The power goes after so many more steps: a byte written is one, and so is a sync or a change
    /// of a name. Everything fails until [`SimulatedDisk::lose_power`] is called.
    PowerLoss(u64),
}

/// How often the disk has been called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Number of calls that write to a file.
    pub writes: u64,
    /// Number of syncs of files.
    pub syncs: u64,
    /// Syncs of the directory.
    pub directory_syncs: u64,
    /// Creations, renames and removals.
    pub name_changes: u64,
    /// Number of calls that read from a file.
    pub reads: u64,
    /// Bytes returned by those reads.
    pub read_bytes: u64,
}

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug)]
struct DiskState {
    inodes: HashMap<u64, Inode>,
    next_inode: u64,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending_names: Vec<NameChange>,
    capacity_bytes: u64,
    fault: Option<Fault>,
    /// Steps left until the power goes.
    steps_left: Option<u64>,
    /// Goes up when processes end: files opened before are closed.
    life: u64,
    locked: bool,
    open_files: usize,
    open_files_max: usize,
    calls: Calls,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk(Arc<Mutex<DiskState>>);

/// A file of a [`SimulatedDisk`].
#[derive(Debug)]
pub struct SimulatedFile {
    disk: SimulatedDisk,
    inode: u64,
    life: u64,
}

/// The held lock of a [`SimulatedDisk`].
#[derive(Debug)]
pub struct SimulatedLock {
    disk: SimulatedDisk,
    life: u64,
}

impl SimulatedDisk {
    /// An empty disk of this size.
    pub fn new(capacity_bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(DiskState {
            inodes: HashMap::new(),
            next_inode: 1,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            capacity_bytes,
            fault: None,
            steps_left: None,
            life: 0,
            locked: false,
            open_files: 0,
            open_files_max: usize::MAX,
            calls: Calls::default(),
        })))
    }

    /// Changes the size; files that are there stay.
    pub fn resize(&self, capacity_bytes: u64) {
        self.world().capacity_bytes = capacity_bytes;
    }

    /// Lets no more files be open at a time, as a process is held to by its limit of descriptors.
    pub fn limit_open_files(&self, most: usize) {
        self.world().open_files_max = most;
    }

    /// Lets something go wrong; it replaces what was asked for before and has not happened.
    pub fn inject(&self, fault: Fault) {
        let mut world = self.world();
        match fault {
            Fault::PowerLoss(steps) => world.steps_left = Some(steps),
            other => world.fault = Some(other),
        }
    }

    /// Ends every process: what they wrote is still there, in memory.
    pub fn kill(&self) {
        let mut world = self.world();
        world.life += 1;
        world.open_files = 0;
        world.locked = false;
        world.fault = None;
        world.steps_left = None;
    }

    /// Switches off and on again. `random` decides what of the unsynced is found.
    pub fn lose_power(&self, chance: &mut SplitMix64) {
        self.kill();
        self.world().lose_power(chance);
    }

    /// Whether an injected loss of power has come.
    pub fn is_dead(&self) -> bool {
        self.world().steps_left == Some(0)
    }

    /// How often the disk has been called.
    pub fn calls(&self) -> Calls {
        self.world().calls
    }

    /// A file's content as processes see it.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let world = self.world();
        let inode = world.names.get(name)?;
        Some(world.inodes.get(inode)?.content.clone())
    }

    /// Replaces a file's content, durably, without the log's knowledge.
    pub fn overwrite(&self, name: &str, content: Vec<u8>) {
        let mut world = self.world();
        let Some(inode) = world.names.get(name).copied() else {
            return;
        };
        let inode = world.inodes.entry(inode).or_default();
        inode.durable.clone_from(&content);
        inode.content = content;
        inode.pending.clear();
    }

    fn world(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().expect("no holder of this lock can panic")
    }

    fn change(&self, change: NameChange) -> io::Result<()> {
        let mut world = self.world();
        world.calls.name_changes += 1;
        world.step(1)?;
        apply(&mut world.names, &change);
        world.pending_names.push(change);
        Ok(())
    }

    fn file(&self, world: &mut DiskState, inode: u64) -> SimulatedFile {
        world.open_files += 1;
        SimulatedFile {
            disk: self.clone(),
            inode,
            life: world.life,
        }
    }
}

impl DiskState {
    fn check_open_files(&self) -> io::Result<()> {
        if self.open_files < self.open_files_max {
            return Ok(());
        }
        Err(rustix::io::Errno::MFILE.into())
    }

    /// Uses up steps and answers how many there were.
    fn step(&mut self, wanted: u64) -> io::Result<u64> {
        let Some(left) = &mut self.steps_left else {
            return Ok(wanted);
        };
        if *left == 0 {
            return Err(io::Error::other("the power is gone"));
        }
        let taken = wanted.min(*left);
        *left -= taken;
        Ok(taken)
    }

    fn find(&self, name: &str) -> io::Result<u64> {
        let inode = self.names.get(name).copied();
        inode.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Bytes that `inode` may grow by.
    fn free_bytes(&self) -> u64 {
        let used = self
            .names
            .values()
            .filter_map(|inode| self.inodes.get(inode))
            .map(|inode| inode.content.len() as u64)
            .sum();
        self.capacity_bytes.saturating_sub(used)
    }

    fn lose_power(&mut self, chance: &mut SplitMix64) {
        let kept = chance.below(self.pending_names.len() as u64 + 1) as usize;
        let journaled = chance.percent(60);
        for (at, change) in self.pending_names.iter().enumerate() {
            let found = if journaled {
                at < kept
            } else {
                chance.percent(50)
            };
            if found {
                apply(&mut self.durable_names, change);
            }
        }
        self.pending_names.clear();
        self.names.clone_from(&self.durable_names);
        let Self { inodes, names, .. } = self;
        inodes.retain(|number, _| names.values().any(|named| named == number));
        // In the order of names, so that a seed means the same in every run.
        for number in names.values() {
            if let Some(inode) = inodes.get_mut(number) {
                inode.lose_power(chance);
            }
        }
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: &NameChange) {
    match change {
        NameChange::Create(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        NameChange::Remove(name) => {
            names.remove(name);
        }
    }
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;
    type Lock = SimulatedLock;

    fn open(&self, name: &str) -> io::Result<SimulatedFile> {
        let mut world = self.world();
        let inode = world.find(name)?;
        world.check_open_files()?;
        Ok(self.file(&mut world, inode))
    }

    fn create(&self, name: &str) -> io::Result<SimulatedFile> {
        let mut world = self.world();
        if world.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        world.check_open_files()?;
        let inode = world.next_inode;
        world.next_inode += 1;
        world.inodes.insert(inode, Inode::default());
        drop(world);
        self.change(NameChange::Create(name.to_owned(), inode))?;
        Ok(self.file(&mut self.world(), inode))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.world().find(from)?;
        self.change(NameChange::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.world().find(name)?;
        self.change(NameChange::Remove(name.to_owned()))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.world().names.keys().cloned().collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut world = self.world();
        world.calls.directory_syncs += 1;
        world.step(1)?;
        let DiskState {
            pending_names,
            durable_names,
            ..
        } = &mut *world;
        for change in pending_names.drain(..) {
            apply(durable_names, &change);
        }
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.world().free_bytes())
    }

    fn lock(&self) -> io::Result<SimulatedLock> {
        let mut world = self.world();
        if std::mem::replace(&mut world.locked, true) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "1"));
        }
        Ok(SimulatedLock {
            disk: self.clone(),
            life: world.life,
        })
    }

    fn place(&self) -> String {
        "simulated".to_owned()
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut world = self.disk.world();
        if world.life == self.life {
            world.open_files -= 1;
        }
    }
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut world = self.disk.world();
        if world.life == self.life {
            world.locked = false;
        }
    }
}

impl SimulatedFile {
    fn world(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let world = self.disk.world();
        if world.life != self.life {
            return Err(io::Error::other(
                "the process that opened the file has ended",
            ));
        }
        Ok(world)
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut world = self.world()?;
        world.calls.writes += 1;
        let mut length = bytes.len();
        match world.fault {
            Some(Fault::ShortWrite(most)) => {
                world.fault = None;
                length = length.min(most.max(1));
            }
            Some(Fault::Full(0)) => {
                world.fault = None;
                return Err(io::ErrorKind::StorageFull.into());
            }
            Some(Fault::Full(most)) => {
                length = length.min(most);
                world.fault = (length == most).then_some(Fault::Full(0));
            }
            Some(Fault::WriteError(most)) => length = length.min(most),
            Some(Fault::SyncError | Fault::PowerLoss(_)) | None => {}
        }
        let taken = world.step(length as u64)?;
        let size = world
            .inodes
            .get(&self.inode)
            .map_or(0, |inode| inode.content.len() as u64);
        let room = size.saturating_sub(offset) + world.free_bytes();
        let length = taken.min(room) as usize;
        if let Some(inode) = world.inodes.get_mut(&self.inode) {
            inode.write(offset, &bytes[..length]);
        }
        if let Some(Fault::WriteError(_)) = world.fault {
            world.fault = None;
            return Err(io::Error::other("injected: the write failed"));
        }
        if length == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(length)
    }

    fn read_at(&self, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        let mut world = self.world()?;
        let DiskState { inodes, calls, .. } = &mut *world;
        let content = inodes
            .get(&self.inode)
            .map_or(&[][..], |inode| &inode.content);
        let from = content.len().min(offset as usize);
        let length = (buffer.capacity() - buffer.len()).min(content.len() - from);
        buffer.extend_from_slice(&content[from..from + length]);
        calls.reads += 1;
        calls.read_bytes += length as u64;
        Ok(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.world()?;
        world.calls.syncs += 1;
        world.step(1)?;
        let failing = world.fault == Some(Fault::SyncError);
        if failing {
            world.fault = None;
        }
        let Some(inode) = world.inodes.get_mut(&self.inode) else {
            return Ok(());
        };
        if failing {
            inode.pending.clear();
            return Err(io::Error::other("injected: the sync failed"));
        }
        inode.sync();
        Ok(())
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        let mut world = self.world()?;
        world.step(1)?;
        if let Some(inode) = world.inodes.get_mut(&self.inode) {
            inode.truncate(size_bytes as usize);
        }
        Ok(())
    }

    fn has_other_names(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn size_bytes(&self) -> io::Result<u64> {
        let world = self.world()?;
        Ok(world
            .inodes
            .get(&self.inode)
            .map_or(0, |inode| inode.content.len() as u64))
    }
}
