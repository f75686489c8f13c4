//! Starting the process of a postmaster: its arguments, its user, and what confines it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use super::Launch;
use crate::control_groups::GroupLease;
use crate::error::{PostgresError, io};
use crate::isolation::UserLease;
use crate::owner::Owner;

/// Settings by which a server finds its own files, whatever its configuration says.
fn own_places(data: &Path) -> Vec<String> {
    let place = |name: &str, path: &Path| ["-c".to_owned(), format!("{name}={}", path.display())];
    [
        place("data_directory", data),
        place("hba_file", &data.join("pg_hba.conf")),
        place("ident_file", &data.join("pg_ident.conf")),
    ]
    .concat()
}

/// A process that has been started.
pub(super) struct Spawned {
    /// Its id.
    pub pid: Pid,
    /// What it prints, to be read.
    pub log: File,
}

/// The control group of a server to be kept apart, where this machine has them.
pub(super) fn group(launch: &Launch) -> Result<Option<GroupLease>, PostgresError> {
    let Some(isolation) = &launch.isolation else {
        return Ok(None);
    };
    let leased = isolation.groups().lease(&launch.data, launch.nice);
    leased.map_err(io("make a control group for", &launch.data))
}

/// The program with its arguments and environment.
fn command(launch: &Launch) -> Command {
    let mut command = Command::new(launch.binaries.program("postgres"));
    command
        .arg("-D")
        .arg(&launch.data)
        .arg("-k")
        .arg(&launch.socket_dir)
        .arg("-p")
        .arg(launch.port.to_string())
        // Files of a copied data directory may name those of the original.
        .args(own_places(&launch.data))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C")
        // For libraries beside the program: the loader asks /proc where that is, or this variable.
        .env("LD_ORIGIN_PATH", &launch.binaries.directory)
        .current_dir("/");
    for (name, value) in &launch.settings {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    command
}

pub(super) fn spawn(
    launch: &Launch,
    lease: Option<&UserLease>,
    group: Option<&GroupLease>,
) -> Result<Spawned, PostgresError> {
    let scratch = scratch(launch, lease)?;
    let log = open_log(launch, scratch.as_ref()).map_err(io("open", &launch.log_file))?;
    let copy = || log.try_clone().map_err(io("open", &launch.log_file));
    let (output, errors) = (copy()?, copy()?);
    let has_scratch = scratch.is_some();
    let mut command = command(launch);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    if lease.is_none() {
        launch.owner.apply(&mut command);
    }
    match &launch.isolation {
        None => {
            egret_linux::session::in_own_session(&mut command);
        }
        Some(isolation) => {
            let preloaded = |(name, _): &&(String, String)| name == "shared_preload_libraries";
            let libraries = launch.settings.iter().rev().find(preloaded);
            let mut confinement = isolation.confine(
                &launch.binaries,
                &launch.data,
                &launch.socket_dir,
                libraries.map_or("", |(_, value)| value.as_str()),
                lease.map(|lease| (lease, scratch)),
            )?;
            if let Some(group) = group {
                let entrance = group
                    .entrance()
                    .map_err(io("confine the server of", &launch.data))?;
                confinement = confinement.in_group(entrance);
            }
            confinement.apply(&mut command);
        }
    }
    let program = Path::new(command.get_program()).to_owned();
    let mut child = command.spawn().map_err(io("run", &program))?;
    let pid = i32::try_from(child.id()).expect("a Linux pid is at most 2^22");
    let log_name = launch.log_file.file_name().unwrap_or_default();
    if has_scratch && let Err(error) = link_scratch(&launch.socket_dir, launch.port, log_name, pid)
    {
        // No session would reach the server. One that has ended already is what this is for.
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    let pid = Pid::from_raw(pid).expect("a child's pid is positive");
    Ok(Spawned { pid, log })
}

/// The file system in memory for the socket of a server with a user of its own. Where it has none, the directory of the
/// socket is made that user's.
fn scratch(launch: &Launch, lease: Option<&UserLease>) -> Result<Option<OwnedFd>, PostgresError> {
    let (Some(lease), Some(isolation)) = (lease, &launch.isolation) else {
        return Ok(None);
    };
    let made = isolation.scratch(lease);
    let scratch = made.map_err(io("make a file system for", &launch.socket_dir))?;
    if scratch.is_none() {
        let user = Owner::without_account(lease.id());
        crate::cluster::private_directory(&launch.socket_dir, &user)?;
    }
    Ok(scratch)
}

fn open_log(launch: &Launch, scratch: Option<&OwnedFd>) -> std::io::Result<File> {
    let Some(scratch) = scratch else {
        return File::options()
            .create(true)
            .append(true)
            .read(true)
            .mode(0o600)
            .custom_flags(crate::cluster::NO_FOLLOW)
            .open(&launch.log_file);
    };
    let flags = OFlags::CREATE | OFlags::APPEND | OFlags::RDWR | OFlags::CLOEXEC;
    let name = launch.log_file.file_name().unwrap_or_default();
    let opened = rustix::fs::openat(scratch, name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(opened.into())
}

/// Has the names in the directory of a socket lead to what the server `pid` has mounted there for itself.
pub(super) fn link_scratch(
    directory: &Path,
    port: u16,
    log_name: &OsStr,
    pid: i32,
) -> Result<(), PostgresError> {
    let link = || -> std::io::Result<()> {
        let mounted = std::fs::canonicalize(directory)?;
        let inside = mounted.strip_prefix("/").map_err(std::io::Error::other)?;
        let inside = Path::new("/proc").join(format!("{pid}/root")).join(inside);
        let socket = crate::wire::socket_name(port);
        for name in [OsStr::new(&socket), log_name] {
            let path = directory.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => symlink(inside.join(name), path)?,
            }
        }
        Ok(())
    };
    link().map_err(io("make links in", directory))
}
