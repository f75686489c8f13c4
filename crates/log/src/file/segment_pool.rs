//! Housekeeping beside the append path: spare segments made ahead, files of dropped segments made
//! spare or deleted, compacted files put in their place. In the order asked for, each step durable
//! before the next, so that a crash never leaves a hole in the middle of the log.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use egret_base::Condition;
use egret_base::sync::lock;

use crate::disk::{Disk, DiskFile, fill_with_zeros};
use crate::{LogConfig, LogError};

/// How long the thread waits before it tries again what failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(crate) const SPARE_PREFIX: &str = "spare-";

/// A file that is no longer part of the log.
#[derive(Clone, Debug)]
pub(crate) struct RetiredFile {
    pub name: String,
    /// Whether it has a segment's size and no reader uses it.
    pub is_reusable: bool,
    /// Set when its removal is durable.
    pub removal_flag: Arc<AtomicBool>,
}

/// A change of the directory.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Drops files, the oldest first.
    Retire(RetiredFile),
    /// Gives a compacted file its name, then deletes the others that it stands for.
    Replace {
        temporary_name: String,
        name: String,
        superseded_names: Vec<String>,
        /// Set, for each file replaced, when that is durable.
        removal_flags: Vec<Arc<AtomicBool>>,
    },
    /// Deletes a file that was never part of the log.
    Discard(String),
}

/// A file without a segment yet, filled with zeros or with what is no longer of use.
pub(crate) struct Spare<F> {
    pub name: String,
    pub file: F,
}

struct PoolState<F> {
    spares: Vec<Spare<F>>,
    next_number: u64,
    /// A spare segment is being written just now.
    is_making_spare: bool,
    tasks: VecDeque<Task>,
    /// Why the last attempt at a task failed.
    task_failure: Option<LogError>,
    /// Why the last attempt to make a spare segment failed. A task that succeeds says nothing of
    /// that.
    spare_failure: Option<LogError>,
    is_closed: bool,
}

impl<F> PoolState<F> {
    fn failure(&self) -> Option<&LogError> {
        self.task_failure.as_ref().or(self.spare_failure.as_ref())
    }
}

/// Spare segments and pending changes of the directory, shared by the owner of a log and its
/// housekeeping thread.
pub(crate) struct SegmentPool<D: Disk> {
    disk: D,
    pub place: Arc<str>,
    segment_bytes: u64,
    spares_target: usize,
    recycled_max: usize,
    state: Mutex<PoolState<D::File>>,
    changed: Condvar,
}

impl<D: Disk> SegmentPool<D> {
    /// Takes over the spare files among `names`; those of another size, and names of files that
    /// others have too, are deleted.
    pub(crate) fn open(
        disk: D,
        place: Arc<str>,
        config: &LogConfig,
        names: &[String],
    ) -> Result<Self, LogError> {
        let mut spares = Vec::new();
        let mut next_number = 0;
        for name in names {
            let Some(number) =
                name.strip_prefix(SPARE_PREFIX).and_then(|digits| digits.parse::<u64>().ok())
            else {
                continue;
            };
            next_number = next_number.max(number + 1);
            let to_error = |action| io_error(&place, action, name);
            let file = disk.open(name).map_err(to_error("open"))?;
            let is_ours = !file.has_other_names().map_err(to_error("stat"))?;
            if is_ours && file.size_bytes().map_err(to_error("stat"))? == config.segment_bytes {
                spares.push(Spare { name: name.clone(), file });
            } else {
                disk.remove(name).map_err(to_error("remove"))?;
            }
        }
        Ok(Self {
            disk,
            place,
            segment_bytes: config.segment_bytes,
            spares_target: config.spare_segments,
            recycled_max: config.recycled_segments_max.max(config.spare_segments),
            state: Mutex::new(PoolState {
                spares,
                next_number,
                is_making_spare: false,
                tasks: VecDeque::new(),
                task_failure: None,
                spare_failure: None,
                is_closed: false,
            }),
            changed: Condvar::new(),
        })
    }

    /// A file to begin a segment in. Waits for one that is just being made; makes one when there
    /// is none.
    pub(crate) fn take_spare(&self) -> Result<Spare<D::File>, LogError> {
        let mut state = self.lock_state();
        loop {
            if let Some(spare) = state.spares.pop() {
                self.changed.notify_all();
                return Ok(spare);
            }
            if state.is_making_spare {
                state = self.await_spare_made(state);
                continue;
            }
            let (after, result) = self.add_spare(state);
            result?;
            state = after;
        }
    }

    /// Makes a file of `bytes` zeros.
    pub(crate) fn create_sized_spare(&self, bytes: u64) -> Result<Spare<D::File>, LogError> {
        self.create_spare(bytes)
    }

    /// Takes a file back that was not used after all.
    pub(crate) fn return_spare(&self, spare: Spare<D::File>) {
        self.lock_state().spares.push(spare);
    }

    /// Sees to it that so many spare segments are ready. Fails at once while the last attempt at
    /// housekeeping has failed: it is tried again there.
    pub(crate) fn reserve(&self, spares: u64) -> Result<(), LogError> {
        let mut state = self.lock_state();
        while (state.spares.len() as u64) < spares {
            if let Some(failure) = state.failure() {
                return Err(failure.clone());
            }
            state = if state.is_making_spare {
                self.await_spare_made(state)
            } else {
                self.add_spare(state).0
            };
        }
        Ok(())
    }

    fn await_spare_made<'a>(
        &self,
        state: MutexGuard<'a, PoolState<D::File>>,
    ) -> MutexGuard<'a, PoolState<D::File>> {
        self.changed
            .wait_while(state, |state| state.is_making_spare)
            .expect("no holder of this lock can panic")
    }

    /// Makes a spare segment while others see that one is being made, and answers whether it did.
    fn add_spare<'a>(
        &'a self,
        mut state: MutexGuard<'a, PoolState<D::File>>,
    ) -> (MutexGuard<'a, PoolState<D::File>>, Result<(), LogError>) {
        state.is_making_spare = true;
        drop(state);
        let result = self.create_spare(self.segment_bytes);
        let mut state = self.lock_state();
        state.is_making_spare = false;
        state.spare_failure = result.as_ref().err().cloned();
        let outcome = result.map(|spare| state.spares.push(spare));
        self.changed.notify_all();
        (state, outcome)
    }

    /// Why the last attempt at a part of housekeeping failed, until that part succeeds.
    pub(crate) fn failure(&self) -> Option<LogError> {
        self.lock_state().failure().cloned()
    }

    /// Leaves work for the housekeeping.
    pub(crate) fn submit(&self, task: Task) {
        self.lock_state().tasks.push_back(task);
        self.changed.notify_all();
    }

    /// Does the next thing there is to do and answers whether there was one.
    pub(crate) fn step(&self) -> Result<bool, LogError> {
        let state = self.lock_state();
        let task = state.tasks.front().cloned();
        if let Some(task) = task {
            drop(state);
            let result = self.run_task(&task);
            let mut state = self.lock_state();
            state.task_failure = result.as_ref().err().cloned();
            // What failed stays in front: a later change must not become durable before it.
            if result.is_ok() {
                state.tasks.pop_front();
            }
            return result.map(|()| true);
        }
        let state = self.await_spare_made(state);
        // A caller that wanted more spares than usual is refused until one can be made.
        if state.spares.len() >= self.spares_target && state.spare_failure.is_none() {
            return Ok(false);
        }
        self.add_spare(state).1.map(|()| true)
    }

    fn run_task(&self, task: &Task) -> Result<(), LogError> {
        match task {
            Task::Retire(retired) => {
                self.retire(retired)?;
                retired.removal_flag.store(true, Ordering::Release);
                Ok(())
            }
            Task::Replace { temporary_name, name, superseded_names, removal_flags } => {
                self.ignore_missing(
                    "rename",
                    temporary_name,
                    self.disk.rename(temporary_name, name),
                )?;
                self.sync_directory()?;
                for superseded in superseded_names {
                    self.ignore_missing("remove", superseded, self.disk.remove(superseded))?;
                }
                self.sync_directory()?;
                for flag in removal_flags {
                    flag.store(true, Ordering::Release);
                }
                Ok(())
            }
            Task::Discard(name) => self.ignore_missing("remove", name, self.disk.remove(name)),
        }
    }

    fn retire(&self, retired: &RetiredFile) -> Result<(), LogError> {
        let name = &retired.name;
        let mut state = self.lock_state();
        if !retired.is_reusable || state.spares.len() >= self.recycled_max {
            drop(state);
            self.ignore_missing("remove", name, self.disk.remove(name))?;
            return self.sync_directory();
        }
        let spare = self.next_spare_name(&mut state);
        drop(state);
        match self.disk.rename(name, &spare) {
            Ok(()) => {}
            // Done by an earlier attempt whose sync failed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.sync_directory(),
            Err(error) => return Err(io_error(&self.place, "rename", name)(error)),
        }
        self.sync_directory()?;
        let file = self.disk.open(&spare).map_err(io_error(&self.place, "open", &spare))?;
        if file.has_other_names().map_err(io_error(&self.place, "stat", &spare))? {
            // A repair kept the original beside the log: what is written here would be written
            // there.
            self.ignore_missing("remove", &spare, self.disk.remove(&spare))?;
            return self.sync_directory();
        }
        self.lock_state().spares.push(Spare { name: spare, file });
        self.changed.notify_all();
        Ok(())
    }

    fn create_spare(&self, bytes: u64) -> Result<Spare<D::File>, LogError> {
        let name = self.next_spare_name(&mut self.lock_state());
        let to_error = |action| io_error(&self.place, action, &name);
        let file = self.disk.create(&name).map_err(to_error("create"))?;
        if let Err(error) = fill_with_zeros(&file, bytes) {
            // What is left of it would keep the space that is already short.
            self.ignore_missing("remove", &name, self.disk.remove(&name))?;
            if crate::disk::is_full(&error) {
                return Err(LogError::Full { place: self.place.to_string(), needed_bytes: bytes });
            }
            return Err(to_error("write")(error));
        }
        self.disk.sync_directory().map_err(to_error("sync the directory of"))?;
        Ok(Spare { name, file })
    }

    fn next_spare_name(&self, state: &mut PoolState<D::File>) -> String {
        let name = format!("{SPARE_PREFIX}{:08}", state.next_number);
        state.next_number += 1;
        name
    }

    /// A file that is not there any more has been dealt with by an earlier attempt.
    fn ignore_missing(
        &self,
        action: &'static str,
        name: &str,
        result: io::Result<()>,
    ) -> Result<(), LogError> {
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error(&self.place, action, name)(error))
            }
            _ => Ok(()),
        }
    }

    fn sync_directory(&self) -> Result<(), LogError> {
        self.disk.sync_directory().map_err(io_error(&self.place, "sync", "."))
    }

    fn lock_state(&self) -> MutexGuard<'_, PoolState<D::File>> {
        lock(&self.state)
    }

    fn run(&self) {
        let condition = Condition::new("log_housekeeping_failing", subject(&self.place));
        loop {
            let result = self.step();
            match &result {
                // A task that succeeds leaves the failure of a spare segment as it is.
                Ok(_) if self.failure().is_some() => {}
                Ok(_) => condition.recover("housekeeping of a log works again"),
                Err(error) => condition.fail(error, "housekeeping of a log failed; retrying"),
            }
            let state = self.lock_state();
            match result {
                Ok(true) => {}
                _ if state.is_closed => return,
                Ok(false) => {
                    let is_idle = |state: &mut PoolState<D::File>| {
                        !state.is_closed
                            && state.tasks.is_empty()
                            && state.spares.len() >= self.spares_target
                            && state.spare_failure.is_none()
                    };
                    drop(self.changed.wait_while(state, is_idle));
                }
                Err(_) => {
                    let is_open = |state: &mut PoolState<D::File>| !state.is_closed;
                    drop(self.changed.wait_timeout_while(state, RETRY_DELAY, is_open));
                }
            }
        }
    }
}

/// The end of a log's path, such as `queue/001`: what an operator knows it by.
fn subject(place: &str) -> String {
    let mut parts: Vec<&str> = place.rsplit('/').take(2).collect();
    parts.reverse();
    parts.join("/")
}

fn io_error(
    place: &str,
    action: &'static str,
    name: &str,
) -> impl FnOnce(io::Error) -> LogError + use<> {
    let file = format!("{place}/{name}");
    move |source| LogError::Io { action, file, source: Arc::new(source) }
}

/// The housekeeping thread; dropping it finishes what was asked and joins.
pub(crate) struct HousekeepingThread<D: Disk> {
    pool: Arc<SegmentPool<D>>,
    thread: Option<JoinHandle<()>>,
}

impl<D: Disk> HousekeepingThread<D> {
    pub(crate) fn start(pool: Arc<SegmentPool<D>>) -> io::Result<Self> {
        let shared = Arc::clone(&pool);
        let thread = std::thread::Builder::new()
            .name("log-keeper".to_owned())
            .spawn(move || shared.run())?;
        Ok(Self { pool, thread: Some(thread) })
    }
}

impl<D: Disk> Drop for HousekeepingThread<D> {
    fn drop(&mut self) {
        self.pool.lock_state().is_closed = true;
        self.pool.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the housekeeping thread of a log panicked");
        }
    }
}

#[cfg(test)]
mod tests;
