//! One postmaster: launched or adopted, watched, signalled and stopped.
//!
//! A postmaster leads its own session, so that it outlives a crash of Egret; the next Egret adopts
//! it by data directory, pid and process start time. Readiness is read from the status line of
//! `postmaster.pid` the moment it changes; end is read from a pidfd. Nothing here polls.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use egret_linux::readable::Readable;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use tokio::runtime::Handle;

use crate::control_groups::GroupLease;
use crate::error::{PostgresError, io_error};
use crate::isolation::{Isolation, UserLease};
use crate::pidfile::PidFile;

mod launch;
mod log;
mod process;
mod spawn;
mod watch;

pub use launch::{Launch, SOCKET_PATH_BYTES_MAX, check_socket_path};
pub(crate) use log::last_lines;
pub(crate) use process::is_server_below;
pub use process::{pids_in_directory, start_ticks};

/// Lines of a server's log that say why it did not start.
const LOG_LINES: usize = 12;

/// How a postmaster is told to stop (`pg_ctl stop -m`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Sessions are ended, a checkpoint is written: a clean data directory.
    Fast,
    /// At once, as after a crash: for data that is thrown away or recovered later.
    Immediate,
}

/// A running postmaster process of one data directory.
#[derive(Debug)]
pub struct Postmaster {
    pid: Pid,
    start_ticks: u64,
    data: PathBuf,
    pidfd: Readable,
    /// Whether a process of it may outlive an orderly end, as the log collector does.
    collects_log: bool,
    /// The user that it alone runs as; its last processes end with this.
    user_lease: Option<UserLease>,
    /// Its output, whose file may have no path after its end; `None` if the server was adopted.
    log: Option<File>,
    /// The control group that it alone is in.
    group_lease: Option<GroupLease>,
    /// Whether it ended by itself, which is after the last of its children.
    exited_cleanly: AtomicBool,
}

impl Postmaster {
    /// Takes over the postmaster that runs on a data directory, if one does.
    ///
    /// A pid file whose process is not a postmaster of this very directory (a recycled pid) is not
    /// one.
    ///
    /// # Errors
    /// [`PostgresError::Io`] when the process cannot be watched.
    pub fn adopt(data: &Path) -> Result<Option<Self>, PostgresError> {
        let listed_pid = PidFile::read(data).and_then(|file| Pid::from_raw(file.pid));
        let Some(pid) = listed_pid else {
            return Ok(None);
        };
        let postmaster = match Self::watch_process(pid, data) {
            Ok(postmaster) => postmaster,
            Err(PostgresError::Io { source, .. })
                if source.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // Checked while the pidfd is held: the pid cannot be reused any more.
        if !process::runs_in(postmaster.pid(), data) {
            return Ok(None);
        }
        // An Egret that was killed while it had them frozen could not let them go on.
        for process in processes_in(data) {
            // A process that has ended meanwhile needs no signal.
            let _ = rustix::process::pidfd_send_signal(&process, Signal::CONT);
        }
        Ok(Some(postmaster))
    }

    /// Takes over the user that the server alone runs as and its control group, after it was
    /// adopted.
    #[must_use]
    pub fn with_isolation(mut self, isolation: &Isolation) -> Self {
        self.user_lease = isolation.lease_of_process(self.pid());
        self.group_lease = isolation.groups().lease_of_process(self.pid());
        self
    }

    /// How many of its processes the kernel has killed because its memory, or that of all branches,
    /// was at its limit.
    pub fn memory_kills(&self) -> u64 {
        self.group_lease.as_ref().map_or(0, GroupLease::memory_kills)
    }

    /// Makes the names in `socket_dir` lead to socket and log of an adopted server that has them in
    /// a file system of its own: the Egret that started it may have ended before this step.
    ///
    /// # Errors
    /// [`PostgresError::Io`].
    pub fn link_socket(
        &self,
        socket_dir: &Path,
        port: u16,
        log_file: &Path,
    ) -> Result<(), PostgresError> {
        let socket = socket_dir.join(crate::wire::socket_name(port));
        let is_on_disk = |metadata: fs::Metadata| !metadata.file_type().is_symlink();
        if self.user_lease.is_none() || fs::symlink_metadata(socket).is_ok_and(is_on_disk) {
            return Ok(());
        }
        let log_name = log_file.file_name().unwrap_or_default();
        spawn::link_scratch(socket_dir, port, log_name, self.pid())
    }

    fn watch_process(pid: Pid, data: &Path) -> Result<Self, PostgresError> {
        let proc_path = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)
            .map_err(|error| io_error("watch process", &proc_path)(error.into()))?;
        let pidfd = Readable::new(pidfd).map_err(io_error("watch process", &proc_path))?;
        Ok(Self {
            pid,
            start_ticks: process::start_ticks(pid.as_raw_nonzero().get()).unwrap_or(0),
            data: data.to_owned(),
            pidfd,
            collects_log: true,
            user_lease: None,
            log: None,
            group_lease: None,
            exited_cleanly: AtomicBool::new(false),
        })
    }

    /// Process id of the postmaster.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// When the process started, in clock ticks since boot (field 22 of proc_pid_stat(5)); with the
    /// pid it names a process for good.
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// Waits until the server accepts connections.
    ///
    /// # Errors
    /// [`PostgresError::StartFailed`] with the end of its log when it exits first,
    /// [`PostgresError::StartTimeout`] when it takes longer than `timeout`.
    pub async fn await_ready(
        &self,
        timeout: Duration,
        log_file: &Path,
    ) -> Result<(), PostgresError> {
        let watcher = watch::PidFileWatch::new(&self.data)?;
        let becoming_ready = async {
            loop {
                let file = PidFile::read(&self.data);
                if file.is_some_and(|file| file.pid == self.pid() && file.is_ready) {
                    return Ok(());
                }
                watcher.await_change().await?;
            }
        };
        tokio::select! {
            biased;
            result = becoming_ready => result,
            () = self.await_exit() => Err(PostgresError::StartFailed {
                data: self.data.clone(),
                log: match &self.log {
                    Some(log) => log::last_lines_of(log, LOG_LINES),
                    None => last_lines(log_file, LOG_LINES),
                },
            }),
            () = tokio::time::sleep(timeout) => Err(PostgresError::StartTimeout {
                data: self.data.clone(),
                waited_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
                log_file: log_file.to_owned(),
            }),
        }
    }

    /// Waits until the process has ended; returns at once when it has.
    pub async fn await_exit(&self) {
        // A pidfd becomes readable when its process ends and stays so; an error of the reactor
        // means that the runtime is shutting down, when waiting is over as well.
        if let Err(error) = self.pidfd.readable().await {
            tracing::debug!(%error, "cannot wait on a pidfd");
        }
        self.reap();
    }

    /// Whether the process has ended, reaped or not: one look, without waiting.
    pub fn has_ended(&self) -> bool {
        let mut poll_fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        // An error says nothing: the next use of the process reports it.
        let polled = rustix::event::poll(&mut poll_fds, Some(&rustix::time::Timespec::default()));
        polled.is_ok_and(|ready| ready > 0)
    }

    /// Whether the process is still running.
    pub fn is_running(&self) -> bool {
        process::start_ticks(self.pid()) == Some(self.start_ticks)
            && !process::is_zombie(self.pid())
    }

    /// Whether a signal (SIGSTOP) keeps the process from running.
    pub(crate) fn is_stopped(&self) -> bool {
        process::is_stopped(self.pid())
    }

    /// Collects the exit status when the process is a child of this Egret; an adopted one is not.
    fn reap(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Ok(Some(status)) => {
                let is_orderly = status.exited();
                self.exited_cleanly.store(is_orderly, Ordering::Release);
            }
            Ok(None) | Err(Errno::CHILD) => {}
            Err(error) => {
                tracing::debug!(%error, pid = self.pid(), "cannot reap a postmaster");
            }
        }
    }

    /// Stops the server and waits; what does not stop within `timeout` is stopped immediately, and
    /// what ignores that as well is killed.
    pub async fn stop(&self, mode: StopMode, timeout: Duration) {
        let steps = match mode {
            StopMode::Fast => &[Signal::INT, Signal::QUIT, Signal::KILL][..],
            StopMode::Immediate => &[Signal::QUIT, Signal::KILL][..],
        };
        for signal in steps {
            if self.signal(*signal).is_err() {
                break;
            }
            if tokio::time::timeout(timeout, self.await_exit()).await.is_ok() {
                break;
            }
            tracing::warn!(pid = self.pid(), ?signal, data = %self.data.display(), "postgres did not stop in time");
        }
        self.await_exit().await;
        if let Some(group) = &self.group_lease {
            group.kill_processes();
        }
        if let Some(lease) = &self.user_lease {
            lease.end_processes().await;
        }
        if self.all_processes_exited() {
            return;
        }
        // The log collector, or a backend in the middle of something, ends a moment later.
        let last_exits = await_exits(&self.data);
        if tokio::time::timeout(timeout, last_exits).await.is_err() {
            kill_orphans(&self.data).await;
        }
    }

    /// Whether it has ended and no process of its data directory can be left; `false` also if that
    /// is not known.
    pub fn all_processes_exited(&self) -> bool {
        self.exited_cleanly.load(Ordering::Acquire) && !self.collects_log
    }

    /// Asks the server to read its configuration files again.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn reload(&self) -> Result<(), PostgresError> {
        self.signal(Signal::HUP)
    }

    fn signal(&self, signal: Signal) -> Result<(), PostgresError> {
        rustix::process::pidfd_send_signal(&self.pidfd, signal)
            .map_err(|error| io_error("signal the postmaster of", &self.data)(error.into()))
    }

    /// Stops every process of this server in its tracks (SIGSTOP) until the guard is dropped, so
    /// that its files are those of one moment.
    ///
    /// # Errors
    /// [`PostgresError::Io`] when a process cannot be stopped.
    pub fn freeze(&self) -> Result<process::FreezeGuard, PostgresError> {
        process::freeze(self.pid(), &self.data)
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        // A server that outlives this process keeps its user and its group, and is adopted with
        // them.
        if !self.has_ended() {
            return;
        }
        let (lease, group) = (self.user_lease.take(), self.group_lease.take());
        if lease.is_none() && group.is_none() {
            return;
        }
        // Killed here, as Egret may end before the rest is done. Their ends take a moment, and this
        // may be a thread of the runtime.
        if let Some(group) = &group {
            group.kill_processes();
        }
        if let Some(lease) = &lease {
            lease.kill_current();
        }
        let release = move || launch::release_leases(lease, group);
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(release)),
            Err(_) => release(),
        }
    }
}

/// Kills what a dead postmaster left behind in its data directory and waits until it is gone.
pub async fn kill_orphans(data: &Path) {
    for orphan in processes_in(data) {
        // One that has ended meanwhile needs no killing.
        let _ = rustix::process::pidfd_send_signal(&orphan, Signal::KILL);
        await_process_exit(&orphan).await;
    }
}

/// Waits until every process of a data directory has ended by itself.
async fn await_exits(data: &Path) {
    for process in processes_in(data) {
        await_process_exit(&process).await;
    }
}

/// Handles on the processes of a data directory, which no reuse of a pid can turn to others.
fn processes_in(data: &Path) -> Vec<Readable> {
    let handle = |pid: i32| {
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::NONBLOCK).ok()?;
        // The pid may have been reused between the listing and the open.
        process::runs_in(pid, data).then(|| Readable::new(pidfd).ok())?
    };
    process::pids_in_directory(data).into_iter().filter_map(handle).collect()
}

async fn await_process_exit(process: &Readable) {
    if let Err(error) = process.readable().await {
        tracing::debug!(%error, "cannot wait for the end of a process");
    }
}
