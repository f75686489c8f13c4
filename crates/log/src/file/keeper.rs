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

use crate::disk::{Disk, DiskFile, fill};
use crate::{LogConfig, LogError};

/// How long the thread waits before it tries again what failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(crate) const SPARE_PREFIX: &str = "spare-";

/// A file that is no longer part of the log.
#[derive(Clone, Debug)]
pub(crate) struct RetiredFile {
    pub name: String,
    /// Whether it has a segment's size and no reader uses it.
    pub reusable: bool,
    /// Set when its removal is durable.
    pub gone: Arc<AtomicBool>,
}

/// A change of the directory.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Drops files, the oldest first.
    Retire(RetiredFile),
    /// Gives a compacted file its name, then deletes the others that it stands for.
    Replace {
        temporary: String,
        name: String,
        others: Vec<String>,
        /// Set, for each file replaced, when that is durable.
        gone: Vec<Arc<AtomicBool>>,
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
    ready: Vec<Spare<F>>,
    next_number: u64,
    /// A spare segment is being written just now.
    making: bool,
    tasks: VecDeque<Task>,
    /// Why the last attempt failed.
    failure: Option<LogError>,
    closed: bool,
}

/// Spare segments and pending changes of the directory, shared by the owner of a log and its
/// housekeeping thread.
pub(crate) struct SegmentPool<D: Disk> {
    disk: D,
    pub place: Arc<str>,
    segment_bytes: u64,
    spares_wanted: usize,
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
        let mut ready = Vec::new();
        let mut next_number = 0;
        for name in names {
            let Some(number) = name
                .strip_prefix(SPARE_PREFIX)
                .and_then(|digits| digits.parse::<u64>().ok())
            else {
                continue;
            };
            next_number = next_number.max(number + 1);
            let failed = |action| failed(&place, action, name);
            let file = disk.open(name).map_err(failed("open"))?;
            let is_ours = !file.has_other_names().map_err(failed("stat"))?;
            if is_ours && file.size_bytes().map_err(failed("stat"))? == config.segment_bytes {
                ready.push(Spare {
                    name: name.clone(),
                    file,
                });
            } else {
                disk.remove(name).map_err(failed("remove"))?;
            }
        }
        Ok(Self {
            disk,
            place,
            segment_bytes: config.segment_bytes,
            spares_wanted: config.spare_segments,
            recycled_max: config.recycled_segments_max.max(config.spare_segments),
            state: Mutex::new(PoolState {
                ready,
                next_number,
                making: false,
                tasks: VecDeque::new(),
                failure: None,
                closed: false,
            }),
            changed: Condvar::new(),
        })
    }

    /// A file to begin a segment in. Waits for one that is just being made; makes one when there
    /// is none.
    pub(crate) fn take(&self) -> Result<Spare<D::File>, LogError> {
        let mut state = self.state();
        loop {
            if let Some(spare) = state.ready.pop() {
                self.changed.notify_all();
                return Ok(spare);
            }
            if state.making {
                state = self.wait_for_making(state);
                continue;
            }
            let (after, made) = self.make_ready(state);
            made?;
            state = after;
        }
    }

    /// Makes a file of `bytes` zeros.
    pub(crate) fn make_sized(&self, bytes: u64) -> Result<Spare<D::File>, LogError> {
        self.make(bytes)
    }

    /// Takes a file back that was not used after all.
    pub(crate) fn give_back(&self, spare: Spare<D::File>) {
        self.state().ready.push(spare);
    }

    /// Sees to it that so many spare segments are ready. Fails at once while the last attempt at
    /// housekeeping has failed: it is tried again there.
    pub(crate) fn reserve(&self, spares: u64) -> Result<(), LogError> {
        let mut state = self.state();
        while (state.ready.len() as u64) < spares {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            state = if state.making {
                self.wait_for_making(state)
            } else {
                self.make_ready(state).0
            };
        }
        Ok(())
    }

    fn wait_for_making<'a>(
        &self,
        state: MutexGuard<'a, PoolState<D::File>>,
    ) -> MutexGuard<'a, PoolState<D::File>> {
        self.changed
            .wait_while(state, |state| state.making)
            .expect("no holder of this lock can panic")
    }

    /// Makes a spare segment while others see that one is being made, and answers whether it did.
    fn make_ready<'a>(
        &'a self,
        mut state: MutexGuard<'a, PoolState<D::File>>,
    ) -> (MutexGuard<'a, PoolState<D::File>>, Result<(), LogError>) {
        state.making = true;
        drop(state);
        let made = self.make(self.segment_bytes);
        let mut state = self.state();
        state.making = false;
        state.failure = made.as_ref().err().cloned();
        let done = made.map(|spare| state.ready.push(spare));
        self.changed.notify_all();
        (state, done)
    }

    /// Why the last attempt at housekeeping failed, until one succeeds.
    pub(crate) fn failure(&self) -> Option<LogError> {
        self.state().failure.clone()
    }

    /// Leaves work for the housekeeping.
    pub(crate) fn ask(&self, task: Task) {
        self.state().tasks.push_back(task);
        self.changed.notify_all();
    }

    /// Does the next thing there is to do and answers whether there was one.
    pub(crate) fn step(&self) -> Result<bool, LogError> {
        let state = self.state();
        let task = state.tasks.front().cloned();
        if let Some(task) = task {
            drop(state);
            let done = self.carry_out(&task);
            let mut state = self.state();
            state.failure = done.as_ref().err().cloned();
            // What failed stays in front: a later change must not become durable before it.
            if done.is_ok() {
                state.tasks.pop_front();
            }
            return done.map(|()| true);
        }
        let state = self.wait_for_making(state);
        // A caller that wanted more spares than usual is refused until one can be made.
        if state.ready.len() >= self.spares_wanted && state.failure.is_none() {
            return Ok(false);
        }
        self.make_ready(state).1.map(|()| true)
    }

    fn carry_out(&self, task: &Task) -> Result<(), LogError> {
        match task {
            Task::Retire(retired) => {
                self.retire(retired)?;
                retired.gone.store(true, Ordering::Release);
                Ok(())
            }
            Task::Replace {
                temporary,
                name,
                others,
                gone,
            } => {
                self.tolerate("rename", temporary, self.disk.rename(temporary, name))?;
                self.sync_directory()?;
                for other in others {
                    self.tolerate("remove", other, self.disk.remove(other))?;
                }
                self.sync_directory()?;
                for gone in gone {
                    gone.store(true, Ordering::Release);
                }
                Ok(())
            }
            Task::Discard(name) => self.tolerate("remove", name, self.disk.remove(name)),
        }
    }

    fn retire(&self, retired: &RetiredFile) -> Result<(), LogError> {
        let name = &retired.name;
        let mut state = self.state();
        if !retired.reusable || state.ready.len() >= self.recycled_max {
            drop(state);
            self.tolerate("remove", name, self.disk.remove(name))?;
            return self.sync_directory();
        }
        let spare = self.spare_name(&mut state);
        drop(state);
        match self.disk.rename(name, &spare) {
            Ok(()) => {}
            // Done by an earlier attempt whose sync failed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.sync_directory(),
            Err(error) => return Err(failed(&self.place, "rename", name)(error)),
        }
        self.sync_directory()?;
        let file = self
            .disk
            .open(&spare)
            .map_err(failed(&self.place, "open", &spare))?;
        if file
            .has_other_names()
            .map_err(failed(&self.place, "stat", &spare))?
        {
            // A repair kept the original beside the log: what is written here would be written
            // there.
            self.tolerate("remove", &spare, self.disk.remove(&spare))?;
            return self.sync_directory();
        }
        self.state().ready.push(Spare { name: spare, file });
        self.changed.notify_all();
        Ok(())
    }

    fn make(&self, bytes: u64) -> Result<Spare<D::File>, LogError> {
        let name = self.spare_name(&mut self.state());
        let failed = |action| failed(&self.place, action, &name);
        let file = self.disk.create(&name).map_err(failed("create"))?;
        if let Err(error) = fill(&file, bytes) {
            // What is left of it would keep the space that is already short.
            self.tolerate("remove", &name, self.disk.remove(&name))?;
            if crate::disk::is_full(&error) {
                return Err(LogError::Full {
                    place: self.place.to_string(),
                    needed_bytes: bytes,
                });
            }
            return Err(failed("write")(error));
        }
        self.disk
            .sync_directory()
            .map_err(failed("sync the directory of"))?;
        Ok(Spare { name, file })
    }

    fn spare_name(&self, state: &mut PoolState<D::File>) -> String {
        let name = format!("{SPARE_PREFIX}{:08}", state.next_number);
        state.next_number += 1;
        name
    }

    /// A file that is not there any more has been dealt with by an earlier attempt.
    fn tolerate(
        &self,
        action: &'static str,
        name: &str,
        done: io::Result<()>,
    ) -> Result<(), LogError> {
        match done {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(&self.place, action, name)(error))
            }
            _ => Ok(()),
        }
    }

    fn sync_directory(&self) -> Result<(), LogError> {
        self.disk
            .sync_directory()
            .map_err(failed(&self.place, "sync", "."))
    }

    fn state(&self) -> MutexGuard<'_, PoolState<D::File>> {
        lock(&self.state)
    }

    fn run(&self) {
        let failing = Condition::new("log_housekeeping_failing", subject(&self.place));
        loop {
            let done = self.step();
            match &done {
                Ok(_) => failing.recover("housekeeping of a log works again"),
                Err(error) => failing.fail(error, "housekeeping of a log failed; retrying"),
            }
            let state = self.state();
            match done {
                Ok(true) => {}
                _ if state.closed => return,
                Ok(false) => {
                    let idle = |state: &mut PoolState<D::File>| {
                        !state.closed
                            && state.tasks.is_empty()
                            && state.ready.len() >= self.spares_wanted
                            && state.failure.is_none()
                    };
                    drop(self.changed.wait_while(state, idle));
                }
                Err(_) => {
                    let open = |state: &mut PoolState<D::File>| !state.closed;
                    drop(self.changed.wait_timeout_while(state, RETRY_AFTER, open));
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

fn failed(
    place: &str,
    action: &'static str,
    name: &str,
) -> impl FnOnce(io::Error) -> LogError + use<> {
    let file = format!("{place}/{name}");
    move |source| LogError::Io {
        action,
        file,
        source: Arc::new(source),
    }
}

/// The housekeeping thread; dropping it finishes what was asked and joins.
pub(crate) struct HousekeepingThread<D: Disk> {
    keeper: Arc<SegmentPool<D>>,
    thread: Option<JoinHandle<()>>,
}

impl<D: Disk> HousekeepingThread<D> {
    pub(crate) fn start(keeper: Arc<SegmentPool<D>>) -> io::Result<Self> {
        let shared = Arc::clone(&keeper);
        let thread = std::thread::Builder::new()
            .name("log-keeper".to_owned())
            .spawn(move || shared.run())?;
        Ok(Self {
            keeper,
            thread: Some(thread),
        })
    }
}

impl<D: Disk> Drop for HousekeepingThread<D> {
    fn drop(&mut self) {
        self.keeper.state().closed = true;
        self.keeper.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the housekeeping thread of a log panicked");
        }
    }
}
