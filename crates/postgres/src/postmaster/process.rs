//! Processes of a server, found and identified through `/proc`.

use std::fs;
use std::path::{Path, PathBuf};

use egret_linux::process::working_directory;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::{PostgresError, io_error};

/// Processes kept stopped; dropping it lets them run on.
#[derive(Debug)]
pub struct FreezeGuard {
    pidfds: Vec<std::os::fd::OwnedFd>,
}

impl Drop for FreezeGuard {
    fn drop(&mut self) {
        // The postmaster was stopped first and is resumed last.
        for pidfd in self.pidfds.iter().rev() {
            // A process that ended meanwhile needs no resuming.
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::CONT);
        }
    }
}

/// Stops the postmaster first, so that it forks no more, then each of its children, and returns
/// when the kernel reports all of them as stopped.
pub(super) fn freeze(postmaster: i32, data: &Path) -> Result<FreezeGuard, PostgresError> {
    let mut guard = FreezeGuard { pidfds: Vec::new() };
    let mut stopped: Vec<i32> = Vec::new();
    loop {
        let mut pids = vec![postmaster];
        pids.extend(pids_in_directory(data).into_iter().filter(|pid| *pid != postmaster));
        pids.retain(|pid| !stopped.contains(pid));
        if pids.is_empty() {
            return Ok(guard);
        }
        for pid in pids {
            stopped.push(pid);
            let Some(pid) = Pid::from_raw(pid) else {
                continue;
            };
            let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            if !runs_in(pid.as_raw_nonzero().get(), data) {
                continue;
            }
            rustix::process::pidfd_send_signal(&pidfd, Signal::STOP)
                .map_err(|error| io_error("stop the processes of", data)(error.into()))?;
            guard.pidfds.push(pidfd);
            await_stop(pid.as_raw_nonzero().get());
        }
    }
}

/// Returns when the process is stopped or gone. A process in an uninterruptible system call stops
/// when that returns, which for a write to the page cache is at once.
fn await_stop(pid: i32) {
    while process_state(pid).is_some_and(|state| !matches!(state, 'T' | 't' | 'Z' | 'X')) {
        std::thread::yield_now();
    }
}

/// Every process named `postgres` whose working directory is `data`: a postmaster changes into its
/// data directory and its children stay there.
pub fn pids_in_directory(data: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let data = canonicalize_or_keep(data);
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| runs_in_canonical(*pid, &data))
        .collect()
}

/// Whether `pid` is a live PostgreSQL process of the data directory `data`.
pub(super) fn runs_in(pid: i32, data: &Path) -> bool {
    runs_in_canonical(pid, &canonicalize_or_keep(data))
}

/// Whether `pid` is a live PostgreSQL process of a data directory somewhere below `directory`,
/// whose path has no symbolic links.
pub(crate) fn is_server_below(pid: i32, directory: &Path) -> bool {
    working_directory(pid).is_ok_and(|cwd| cwd.starts_with(directory)) && is_postgres(pid)
}

fn runs_in_canonical(pid: i32, data: &Path) -> bool {
    working_directory(pid).is_ok_and(|cwd| cwd == *data) && is_postgres(pid)
}

fn is_postgres(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| matches!(name.trim(), "postgres" | "postmaster"))
        && !is_zombie(pid)
}

fn canonicalize_or_keep(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Whether the process has ended and only waits to be reaped.
pub(super) fn is_zombie(pid: i32) -> bool {
    matches!(process_state(pid), Some('Z' | 'X'))
}

/// Whether a signal has stopped the process; one that a debugger has stopped is in another state.
pub(super) fn is_stopped(pid: i32) -> bool {
    process_state(pid) == Some('T')
}

fn process_state(pid: i32) -> Option<char> {
    stat_fields(pid)?.first()?.chars().next()
}

/// When a process started, in clock ticks since boot.
pub fn start_ticks(pid: i32) -> Option<u64> {
    // Field 22 of the line; the first two are before the fields returned here.
    stat_fields(pid)?.get(19)?.parse().ok()
}

/// The fields of `/proc/<pid>/stat` after the command name, which may hold spaces and brackets.
fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}
