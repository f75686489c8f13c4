//! Starting the process of a postmaster: its arguments, its user, and what confines it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;

use egret_linux::confine::Confinement;
use egret_linux::spawn::{Program, StandardStreams};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions};

use super::Launch;
use crate::control_groups::GroupLease;
use crate::error::{PostgresError, io_error};
use crate::isolation::UserLease;
use crate::owner::RunAsUser;

/// Settings by which a server finds its own files, whatever its configuration says.
fn own_path_settings(data: &Path) -> Vec<String> {
    let setting = |name: &str, path: &Path| ["-c".to_owned(), format!("{name}={}", path.display())];
    [
        setting("data_directory", data),
        setting("hba_file", &data.join("pg_hba.conf")),
        setting("ident_file", &data.join("pg_ident.conf")),
    ]
    .concat()
}

/// A process that was started.
pub(super) struct ChildProcess {
    /// Process id of the child.
    pub pid: Pid,
    /// What it prints, to be read.
    pub log: File,
}

/// The control group of a server to be kept apart, where this machine has them.
pub(super) fn lease_group(launch: &Launch) -> Result<Option<GroupLease>, PostgresError> {
    let Some(isolation) = &launch.isolation else {
        return Ok(None);
    };
    isolation.groups().lease(&launch.data, launch.nice)
}

/// The program with its arguments and environment.
fn server_program(launch: &Launch) -> Program {
    let mut arguments: Vec<OsString> = vec![
        "-D".into(),
        launch.data.clone().into(),
        "-k".into(),
        launch.socket_dir.clone().into(),
        "-p".into(),
        launch.port.to_string().into(),
    ];
    // Files of a copied data directory may name those of the original.
    arguments.extend(own_path_settings(&launch.data).into_iter().map(OsString::from));
    for (name, value) in &launch.settings {
        arguments.extend(["-c".into(), format!("{name}={value}").into()]);
    }
    Program {
        path: launch.binaries.program("postgres"),
        arguments,
        environment: vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("LC_ALL".into(), "C".into()),
            // For libraries beside the program: the loader asks /proc where that is, or this
            // variable.
            ("LD_ORIGIN_PATH".into(), launch.binaries.directory.clone().into()),
        ],
    }
}

pub(super) fn spawn(
    launch: &Launch,
    lease: Option<&UserLease>,
    group: Option<&GroupLease>,
) -> Result<ChildProcess, PostgresError> {
    let scratch = mount_scratch(launch, lease)?;
    let has_scratch = scratch.is_some();
    let log = open_log(launch, scratch.as_ref()).map_err(io_error("open", &launch.log_file))?;
    let clone_log = || log.try_clone().map_err(io_error("open", &launch.log_file));
    let null = Path::new("/dev/null");
    let streams = StandardStreams {
        input: File::open(null).map_err(io_error("open", null))?.into(),
        output: clone_log()?.into(),
        errors: clone_log()?.into(),
    };
    let program = server_program(launch);
    let spawned = match confinement(launch, lease, group, scratch)? {
        // It changes to its user by the confinement, or has this process's.
        Some(confinement) if lease.is_some() || !launch.owner.needs_switch() => {
            program.spawn(streams, confinement)
        }
        confinement => spawn_as(&launch.owner, &program, streams, confinement),
    };
    let pid = spawned.map_err(io_error("run", &program.path))?;
    let log_name = launch.log_file.file_name().unwrap_or_default();
    if has_scratch
        && let Err(error) =
            link_scratch(&launch.socket_dir, launch.port, log_name, pid.as_raw_nonzero().get())
    {
        // No session would reach the server. One that has ended already is what this is for.
        kill_and_reap(pid);
        return Err(error);
    }
    Ok(ChildProcess { pid, log })
}

/// What bounds the server, where it is to be kept apart.
fn confinement(
    launch: &Launch,
    lease: Option<&UserLease>,
    group: Option<&GroupLease>,
    scratch: Option<OwnedFd>,
) -> Result<Option<Confinement>, PostgresError> {
    let Some(isolation) = &launch.isolation else {
        return Ok(None);
    };
    let is_preload = |(name, _): &&(String, String)| name == "shared_preload_libraries";
    let libraries = launch.settings.iter().rev().find(is_preload);
    let confinement = isolation.confine(
        &launch.binaries,
        &launch.data,
        &launch.socket_dir,
        libraries.map_or("", |(_, value)| value.as_str()),
        lease.map(|lease| (lease, scratch)),
    )?;
    let Some(group) = group else {
        return Ok(Some(confinement));
    };
    let entrance = group.entrance().map_err(io_error("confine the server of", &launch.data))?;
    Ok(Some(confinement.with_group(entrance)))
}

/// Starts a program as `owner`, by the standard library.
fn spawn_as(
    owner: &RunAsUser,
    program: &Program,
    streams: StandardStreams,
    confinement: Option<Confinement>,
) -> std::io::Result<Pid> {
    let mut command = program.command();
    command.stdin(streams.input).stdout(streams.output).stderr(streams.errors);
    owner.apply(&mut command);
    match confinement {
        Some(confinement) => confinement.apply(&mut command),
        None => egret_linux::session::in_own_session(&mut command),
    };
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// Ends a process that was just started, a child of this one that nothing else waits for.
pub(super) fn kill_and_reap(pid: Pid) {
    // Neither fails for such a child, whose pid is not given to another process until it is waited
    // for.
    let _ = rustix::process::kill_process(pid, Signal::KILL);
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
}

/// The file system in memory for the socket of a server with a user of its own. Where it has none,
/// the directory of the socket is made that user's.
fn mount_scratch(
    launch: &Launch,
    lease: Option<&UserLease>,
) -> Result<Option<OwnedFd>, PostgresError> {
    let (Some(lease), Some(isolation)) = (lease, &launch.isolation) else {
        return Ok(None);
    };
    let mounted = isolation.mount_scratch(lease);
    let scratch = mounted.map_err(io_error("make a file system for", &launch.socket_dir))?;
    if scratch.is_none() {
        let user = RunAsUser::without_account(lease.id());
        crate::cluster::create_private_directory(&launch.socket_dir, &user)?;
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

/// Has the names in the directory of a socket lead to what the server `pid` has mounted there for
/// itself.
pub(super) fn link_scratch(
    directory: &Path,
    port: u16,
    log_name: &OsStr,
    pid: i32,
) -> Result<(), PostgresError> {
    let link = || -> std::io::Result<()> {
        let canonical = std::fs::canonicalize(directory)?;
        let relative = canonical.strip_prefix("/").map_err(std::io::Error::other)?;
        let mounted_dir = Path::new("/proc").join(format!("{pid}/root")).join(relative);
        let socket = crate::wire::socket_name(port);
        for name in [OsStr::new(&socket), log_name] {
            let path = directory.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => symlink(mounted_dir.join(name), path)?,
            }
        }
        Ok(())
    };
    link().map_err(io_error("make links in", directory))
}
