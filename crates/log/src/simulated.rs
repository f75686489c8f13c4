//! A disk in memory that forgets, fills up and fails on demand, for simulators of the log and of
//! what stands on it.
//!
//! What it promises is what POSIX does and no more: content is durable after `sync_data` of its
//! file, names after `sync_directory`. At a loss of power each sector of what was not synced is
//! found as it was after any of the writes to it, or in the middle of one, whatever became of the
//! others; of the changes of names, the first so many are found, as a journaling file system has
//! it, or just any.

mod inode;
mod split_mix64;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile};
use inode::Inode;
pub use split_mix64::SplitMix64;

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
    incarnation: u64,
    is_locked: bool,
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
    incarnation: u64,
}

/// The held lock of a [`SimulatedDisk`].
#[derive(Debug)]
pub struct SimulatedLock {
    disk: SimulatedDisk,
    incarnation: u64,
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
            incarnation: 0,
            is_locked: false,
            open_files: 0,
            open_files_max: usize::MAX,
            calls: Calls::default(),
        })))
    }

    /// Changes the size; files that are there stay.
    pub fn resize(&self, capacity_bytes: u64) {
        self.lock_state().capacity_bytes = capacity_bytes;
    }

    /// Lets no more files be open at a time, as a process is held to by its limit of descriptors.
    pub fn limit_open_files(&self, open_files_max: usize) {
        self.lock_state().open_files_max = open_files_max;
    }

    /// Lets something go wrong; it replaces what was asked for before and has not happened.
    pub fn inject(&self, fault: Fault) {
        let mut state = self.lock_state();
        match fault {
            Fault::PowerLoss(steps) => state.steps_left = Some(steps),
            other => state.fault = Some(other),
        }
    }

    /// Ends every process: what they wrote is still there, in memory.
    pub fn kill_processes(&self) {
        let mut state = self.lock_state();
        state.incarnation += 1;
        state.open_files = 0;
        state.is_locked = false;
        state.fault = None;
        state.steps_left = None;
    }

    /// Switches off and on again. `random` decides what of the unsynced is found.
    pub fn lose_power(&self, random: &mut SplitMix64) {
        self.kill_processes();
        self.lock_state().lose_power(random);
    }

    /// Whether an injected loss of power has come.
    pub fn is_dead(&self) -> bool {
        self.lock_state().steps_left == Some(0)
    }

    /// How often the disk has been called.
    pub fn calls(&self) -> Calls {
        self.lock_state().calls
    }

    /// A file's content as processes see it.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock_state();
        let inode = state.names.get(name)?;
        Some(state.inodes.get(inode)?.content.clone())
    }

    /// Replaces a file's content, durably, without the log's knowledge.
    pub fn overwrite(&self, name: &str, content: Vec<u8>) {
        let mut state = self.lock_state();
        let Some(inode) = state.names.get(name).copied() else {
            return;
        };
        let inode = state.inodes.entry(inode).or_default();
        inode.durable.clone_from(&content);
        inode.content = content;
        inode.pending.clear();
    }

    fn lock_state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().expect("no holder of this lock can panic")
    }

    fn apply_name_change(&self, change: NameChange) -> io::Result<()> {
        let mut state = self.lock_state();
        state.calls.name_changes += 1;
        state.take_steps(1)?;
        apply_change(&mut state.names, &change);
        state.pending_names.push(change);
        Ok(())
    }

    fn open_handle(&self, state: &mut DiskState, inode: u64) -> SimulatedFile {
        state.open_files += 1;
        SimulatedFile { disk: self.clone(), inode, incarnation: state.incarnation }
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
    fn take_steps(&mut self, wanted: u64) -> io::Result<u64> {
        let Some(steps_left) = &mut self.steps_left else {
            return Ok(wanted);
        };
        if *steps_left == 0 {
            return Err(io::Error::other("the power is gone"));
        }
        let taken = wanted.min(*steps_left);
        *steps_left -= taken;
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

    fn lose_power(&mut self, random: &mut SplitMix64) {
        let kept_count = random.next_below(self.pending_names.len() as u64 + 1) as usize;
        let is_journaled = random.percent(60);
        for (index, change) in self.pending_names.iter().enumerate() {
            let survives = if is_journaled { index < kept_count } else { random.percent(50) };
            if survives {
                apply_change(&mut self.durable_names, change);
            }
        }
        self.pending_names.clear();
        self.names.clone_from(&self.durable_names);
        let Self { inodes, names, .. } = self;
        inodes.retain(|number, _| names.values().any(|named| named == number));
        // In the order of names, so that a seed means the same in every run.
        for number in names.values() {
            if let Some(inode) = inodes.get_mut(number) {
                inode.lose_power(random);
            }
        }
    }
}

fn apply_change(names: &mut BTreeMap<String, u64>, change: &NameChange) {
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
        let mut state = self.lock_state();
        let inode = state.find(name)?;
        state.check_open_files()?;
        Ok(self.open_handle(&mut state, inode))
    }

    fn create(&self, name: &str) -> io::Result<SimulatedFile> {
        let mut state = self.lock_state();
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.check_open_files()?;
        let inode = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(inode, Inode::default());
        drop(state);
        self.apply_name_change(NameChange::Create(name.to_owned(), inode))?;
        Ok(self.open_handle(&mut self.lock_state(), inode))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.lock_state().find(from)?;
        self.apply_name_change(NameChange::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock_state().find(name)?;
        self.apply_name_change(NameChange::Remove(name.to_owned()))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock_state().names.keys().cloned().collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.lock_state();
        state.calls.directory_syncs += 1;
        state.take_steps(1)?;
        let DiskState { pending_names, durable_names, .. } = &mut *state;
        for change in pending_names.drain(..) {
            apply_change(durable_names, &change);
        }
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.lock_state().free_bytes())
    }

    fn lock(&self) -> io::Result<SimulatedLock> {
        let mut state = self.lock_state();
        if std::mem::replace(&mut state.is_locked, true) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "1"));
        }
        Ok(SimulatedLock { disk: self.clone(), incarnation: state.incarnation })
    }

    fn display_path(&self) -> String {
        "simulated".to_owned()
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut state = self.disk.lock_state();
        if state.incarnation == self.incarnation {
            state.open_files -= 1;
        }
    }
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut state = self.disk.lock_state();
        if state.incarnation == self.incarnation {
            state.is_locked = false;
        }
    }
}

impl SimulatedFile {
    fn lock_state(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let state = self.disk.lock_state();
        if state.incarnation != self.incarnation {
            return Err(io::Error::other("the process that opened the file has ended"));
        }
        Ok(state)
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.lock_state()?;
        state.calls.writes += 1;
        let mut length = bytes.len();
        match state.fault {
            Some(Fault::ShortWrite(most)) => {
                state.fault = None;
                length = length.min(most.max(1));
            }
            Some(Fault::Full(0)) => {
                state.fault = None;
                return Err(io::ErrorKind::StorageFull.into());
            }
            Some(Fault::Full(most)) => {
                length = length.min(most);
                state.fault = (length == most).then_some(Fault::Full(0));
            }
            Some(Fault::WriteError(most)) => length = length.min(most),
            Some(Fault::SyncError | Fault::PowerLoss(_)) | None => {}
        }
        let taken = state.take_steps(length as u64)?;
        let size = state.inodes.get(&self.inode).map_or(0, |inode| inode.content.len() as u64);
        let free_bytes = size.saturating_sub(offset) + state.free_bytes();
        let length = taken.min(free_bytes) as usize;
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            inode.write(offset, &bytes[..length]);
        }
        if let Some(Fault::WriteError(_)) = state.fault {
            state.fault = None;
            return Err(io::Error::other("injected: the write failed"));
        }
        if length == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(length)
    }

    fn read_at(&self, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        let mut state = self.lock_state()?;
        let DiskState { inodes, calls, .. } = &mut *state;
        let content = inodes.get(&self.inode).map_or(&[][..], |inode| &inode.content);
        let from = content.len().min(offset as usize);
        let length = (buffer.capacity() - buffer.len()).min(content.len() - from);
        buffer.extend_from_slice(&content[from..from + length]);
        calls.reads += 1;
        calls.read_bytes += length as u64;
        Ok(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.lock_state()?;
        state.calls.syncs += 1;
        state.take_steps(1)?;
        let is_failing = state.fault == Some(Fault::SyncError);
        if is_failing {
            state.fault = None;
        }
        let Some(inode) = state.inodes.get_mut(&self.inode) else {
            return Ok(());
        };
        if is_failing {
            inode.pending.clear();
            return Err(io::Error::other("injected: the sync failed"));
        }
        inode.sync();
        Ok(())
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        let mut state = self.lock_state()?;
        state.take_steps(1)?;
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            inode.truncate(size_bytes as usize);
        }
        Ok(())
    }

    fn has_other_names(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn size_bytes(&self) -> io::Result<u64> {
        let state = self.lock_state()?;
        Ok(state.inodes.get(&self.inode).map_or(0, |inode| inode.content.len() as u64))
    }
}
