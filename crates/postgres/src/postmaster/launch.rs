//! Launching a postmaster: what is checked before, and what is released when it fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::Pid;

use super::{Postmaster, process, spawn};
use crate::control_groups::GroupLease;
use crate::error::{PostgresError, io_error};
use crate::isolation::{Isolation, UserLease};
use crate::owner::RunAsUser;
use crate::pidfile;
use crate::provision::Binaries;

/// The longest path a unix socket can have, in bytes (`sun_path` of unix(7), less the zero).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// How a postmaster is to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The programs of the server.
    pub binaries: Binaries,
    /// Data directory of the server.
    pub data: PathBuf,
    /// Where its socket goes; must exist and belong to `owner`.
    pub socket_dir: PathBuf,
    /// TCP port, which also names the socket.
    pub port: u16,
    /// Settings given on the command line, which win over every file: name and value.
    pub settings: Vec<(String, String)>,
    /// Owner of its files, and the user it runs as unless it is isolated.
    pub owner: RunAsUser,
    /// Keeps it apart from everything else on the machine.
    pub isolation: Option<Arc<Isolation>>,
    /// Where what it prints goes.
    pub log_file: PathBuf,
    /// Its `oom_score_adj`: positive values offer it to the kernel before others.
    pub oom_score_adj: i16,
    /// By how much its processes yield to others: nice(1), 0 to 19.
    pub nice: u16,
}

impl Postmaster {
    /// Starts a postmaster. It is not ready yet: see [`Postmaster::ready`].
    ///
    /// # Errors
    /// [`PostgresError`] when the socket's path is too long, processes of an earlier postmaster
    /// still use the data directory, or the program cannot be started.
    pub async fn launch(launch: &Launch) -> Result<Self, PostgresError> {
        check_socket_path(&launch.socket_dir, launch.port)?;
        clear_stale_files(launch)?;
        let lease = match &launch.isolation {
            Some(isolation) => isolation.lease()?,
            None => None,
        };
        let launch_copy = launch.clone();
        let started = tokio::task::spawn_blocking(move || {
            start_watched(&launch_copy, lease, Self::watch_process)
        });
        started.await.expect("starting a process does not panic")
    }
}

/// Makes a handle on a process and its data directory.
type Watch = fn(Pid, &Path) -> Result<Postmaster, PostgresError>;

/// Starts the process of a server and has it watched. Where that fails no process is left, and user
/// and group are given back.
fn start_watched(
    launch: &Launch,
    lease: Option<UserLease>,
    watch: Watch,
) -> Result<Postmaster, PostgresError> {
    let group = match spawn::lease_group(launch) {
        Ok(group) => group,
        Err(error) => {
            release_leases(lease, None);
            return Err(error);
        }
    };
    let spawned = spawn::spawn(launch, lease.as_ref(), group.as_ref());
    let watched = spawned.and_then(|spawned| match watch(spawned.pid, &launch.data) {
        Ok(postmaster) => Ok((postmaster, spawned.log)),
        Err(error) => {
            spawn::kill_and_reap(spawned.pid);
            Err(error)
        }
    });
    match watched {
        Ok((mut postmaster, log)) => {
            postmaster.user_lease = lease;
            postmaster.group_lease = group;
            postmaster.log = Some(log);
            let is_collector_off =
                |(name, value): &(String, String)| name == "logging_collector" && value == "off";
            postmaster.collects_log = !launch.settings.iter().any(is_collector_off);
            set_priorities(launch, postmaster.pid);
            Ok(postmaster)
        }
        Err(error) => {
            release_leases(lease, group);
            Err(error)
        }
    }
}

/// Gives back the user and the group of a server that has ended. Takes the time that its last
/// processes take to end.
pub(super) fn release_leases(lease: Option<UserLease>, group: Option<GroupLease>) {
    group.into_iter().for_each(GroupLease::release);
    lease.into_iter().for_each(UserLease::release);
}

fn set_priorities(launch: &Launch, pid: Pid) {
    if launch.nice != 0 {
        // Before it has children, which inherit it.
        let result = rustix::process::setpriority_process(Some(pid), launch.nice.into());
        if let Err(error) = result {
            tracing::debug!(%error, %pid, "cannot lower the priority of a server");
        }
    }
    if launch.oom_score_adj != 0 {
        let path = PathBuf::from(format!("/proc/{pid}/oom_score_adj"));
        // A hint to the kernel; the server works without it.
        if let Err(error) = fs::write(&path, launch.oom_score_adj.to_string()) {
            tracing::debug!(%error, %pid, "cannot set oom_score_adj of a server");
        }
    }
}

/// Refuses a socket path that the kernel cannot take.
///
/// # Errors
/// [`PostgresError::SocketPath`].
pub fn check_socket_path(directory: &Path, port: u16) -> Result<(), PostgresError> {
    let length = directory.join(format!(".s.PGSQL.{port}.lock")).as_os_str().len();
    if length > SOCKET_PATH_BYTES_MAX {
        return Err(PostgresError::SocketPath {
            directory: directory.to_owned(),
            length,
            max: SOCKET_PATH_BYTES_MAX,
        });
    }
    Ok(())
}

/// Removes the pid file and the socket's lock file of a postmaster that is gone, after its last
/// processes are gone too.
///
/// PostgreSQL refuses to start when the pid in either file belongs to any live process, which a
/// recycled pid does; but it must refuse while a backend of the dead postmaster lives on. The
/// socket's directory belongs to this data directory alone.
fn clear_stale_files(launch: &Launch) -> Result<(), PostgresError> {
    let data = &launch.data;
    let socket = launch.socket_dir.join(crate::wire::socket_name(launch.port));
    let stale = [
        pidfile::pid_file_path(data),
        socket.with_extension(format!("{}.lock", launch.port)),
        socket,
    ];
    if stale.iter().all(|path| fs::symlink_metadata(path).is_err()) {
        return Ok(());
    }
    if let Some(pid) = process::pids_in_directory(data).first() {
        return Err(PostgresError::StillInUse { data: data.clone(), pid: *pid });
    }
    for path in stale {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
