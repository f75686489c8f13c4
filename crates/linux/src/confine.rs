//! A child process that reaches nothing but what it was given: Landlock for files, signals and
//! TCP, seccomp for sockets and the rest, and a user and a root file system of its own where this
//! process is root.
//!
//! Everything that allocates or can fail for a reason worth telling is done before the fork; the
//! child makes bare system calls.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use crate::cgroup::Entrance;
use crate::trial;

pub mod mount;
mod paths;
mod root;
mod syscalls;

use paths::PathAccess;
pub use paths::{CommonPaths, PathTable, Replacement};
use root::PrivateRoot;

/// The newest version of Landlock whose rights are asked for; an older kernel gives those it has.
const LANDLOCK: ABI = ABI::V6;

/// The version of Landlock from which on a process cannot signal those outside of its domain.
pub const LANDLOCK_SIGNALS: i32 = 6;

/// What a confined process may reach.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Paths that it reaches as other confined processes do.
    pub common_paths: Arc<PathTable>,
    /// Directories to do everything in.
    pub writable: Vec<PathBuf>,
}

/// A user that only one child has.
#[derive(Debug)]
pub struct PrivateUser {
    /// The numeric user and group id; no other process has it.
    pub id: u32,
    /// Detached mounts, and where the child finds them instead of what is there for others.
    pub mounts: Vec<(OwnedFd, PathBuf)>,
    /// A detached file system of the child's own to write to ([`mount::small_tmpfs`]), and where
    /// the child finds it.
    pub scratch: Option<(OwnedFd, PathBuf)>,
}

/// Upper bounds of a child, see setrlimit(2).
#[derive(Clone, Copy, Debug)]
pub struct ProcessLimits {
    /// Bytes of private memory of each process.
    pub memory_bytes_max: u64,
    /// Processes and threads; counted by user, and so only for a [`PrivateUser`].
    pub processes_max: u64,
}

/// A prepared confinement of one child.
pub struct Confinement {
    ruleset: Option<OwnedFd>,
    filters: &'static [seccompiler::BpfProgram],
    limits: ProcessLimits,
    user: Option<(u32, PrivateRoot)>,
    group: Option<Entrance>,
}

/// The version of Landlock that the kernel has; 0 where it has none.
pub fn landlock_version() -> i32 {
    const VERSION: libc::c_ulong = 1;
    #[expect(unsafe_code, reason = "no crate shows the version of the kernel")]
    // SAFETY: with this flag landlock_create_ruleset(2) takes a null pointer and size 0, reads and
    // writes no memory and answers with a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    i32::try_from(version.max(0)).unwrap_or(0)
}

impl Confinement {
    /// Prepares the confinement of one child, whose user is `user` or this process's.
    ///
    /// # Errors
    /// The kernel's, for instance when a path does not exist.
    pub fn new(
        reach: &Reach,
        limits: ProcessLimits,
        user: Option<PrivateUser>,
    ) -> io::Result<Self> {
        let shares_user = user.is_none();
        let scratch = user.as_ref().and_then(|user| user.scratch.as_ref());
        let ruleset = build_ruleset(reach, scratch.map(|(mount, _)| mount))?;
        let user = match user {
            Some(user) => {
                let mounts = user.mounts.into_iter().chain(user.scratch).collect();
                Some((user.id, PrivateRoot::new(reach, mounts)?))
            }
            None => None,
        };
        Ok(Self { ruleset, filters: syscalls::filters(shares_user)?, limits, user, group: None })
    }

    /// Moves the child into a control group before all other steps.
    #[must_use]
    pub fn with_group(mut self, group: Entrance) -> Self {
        self.group = Some(group);
        self
    }

    pub(crate) fn group(&self) -> Option<&Entrance> {
        self.group.as_ref()
    }

    /// Makes `command` run confined, in a session of its own, as [`crate::session::in_own_session`]
    /// has it. Nothing that is set later in the child is bound by it: call it last.
    pub fn apply(self, command: &mut Command) -> &mut Command {
        #[expect(unsafe_code, reason = "pre_exec is the only way to act in the child")]
        // SAFETY: the closure runs in the forked child before exec and makes bare system calls only
        // (see `enter`): it takes no lock and allocates nothing but errors, which end the child.
        // What it uses was made before the fork and is owned by the closure.
        unsafe {
            command.pre_exec(move || self.enter())
        }
    }

    /// Tries the confinement on a child that ends before it runs a program.
    ///
    /// # Errors
    /// The kernel's, where a step of it does not work here.
    pub fn try_in_child(self) -> io::Result<()> {
        #[expect(unsafe_code, reason = "only system calls may follow a fork")]
        // SAFETY: as in `apply`.
        unsafe {
            trial::try_in_child(move || self.enter())
        }
    }

    fn enter(&self) -> io::Result<()> {
        if let Some(group) = &self.group {
            group.enter()?;
        }
        self.enter_from_within_group()
    }

    /// In a child that is in its group, in this order: each step takes away what the next ones do
    /// not need. Allocates nothing and takes no lock.
    pub(crate) fn enter_from_within_group(&self) -> io::Result<()> {
        rustix::process::setsid()?;
        if let Some((_, root)) = &self.user {
            root.enter()?;
        }
        self.set_limits()?;
        if let Some((id, _)) = self.user {
            become_user(id)?;
        }
        check_result(raw_syscall([libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS.into(), 1, 0, 0, 0]))?;
        if let Some(ruleset) = &self.ruleset {
            check_result(raw_syscall([
                libc::SYS_landlock_restrict_self,
                ruleset.as_raw_fd().into(),
                0,
                0,
                0,
                0,
            ]))?;
        }
        for filter in self.filters {
            seccompiler::apply_filter(filter)
                .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        }
        Ok(())
    }

    fn set_limits(&self) -> io::Result<()> {
        set_limit(rustix::process::Resource::Core, 0)?;
        set_limit(rustix::process::Resource::Data, self.limits.memory_bytes_max)?;
        if self.user.is_some() {
            set_limit(rustix::process::Resource::Nproc, self.limits.processes_max)?;
        }
        Ok(())
    }
}

fn set_limit(resource: rustix::process::Resource, maximum: u64) -> io::Result<()> {
    let limit = rustix::process::Rlimit { current: Some(maximum), maximum: Some(maximum) };
    Ok(rustix::process::setrlimit(resource, limit)?)
}

/// Gives up root and all groups for good.
fn become_user(id: u32) -> io::Result<()> {
    let id = i64::from(id);
    check_result(raw_syscall([libc::SYS_setgroups, 0, 0, 0, 0, 0]))?;
    check_result(raw_syscall([libc::SYS_setresgid, id, id, id, 0, 0]))?;
    check_result(raw_syscall([libc::SYS_setresuid, id, id, id, 0, 0]))
}

/// A bare system call whose arguments are numbers.
fn raw_syscall(numbers: [i64; 6]) -> i64 {
    let [number, a, b, c, d, e] = numbers;
    #[expect(unsafe_code, reason = "these calls have no safe wrapper that acts on one thread")]
    // SAFETY: the callers in this file pass calls that take integers, and for setgroups(2) a null
    // pointer with length 0: none reads or writes memory of this process.
    unsafe {
        libc::syscall(number, a, b, c, d, e)
    }
}

fn check_result(result: i64) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The rules about files, TCP and signals; `None` where the kernel has no Landlock.
fn build_ruleset(reach: &Reach, scratch: Option<&OwnedFd>) -> io::Result<Option<OwnedFd>> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let create = || -> Result<RulesetCreated, landlock::RulesetError> {
        let created = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(LANDLOCK))?
            .handle_access(AccessNet::from_all(LANDLOCK))?
            .scope(Scope::from_all(LANDLOCK))?
            .create()?;
        Ok(created)
    };
    let mut rules = create().map_err(to_io_error)?;
    let write = AccessFs::from_all(LANDLOCK) & !AccessFs::Execute;
    if let Some(scratch) = scratch {
        rules = add_rule(rules, scratch, write, true)?;
    }
    for entry in &reach.common_paths.entries {
        let access = match entry.access {
            PathAccess::Execute => read | AccessFs::Execute,
            PathAccess::Read => read,
            PathAccess::Device => AccessFs::ReadFile | AccessFs::WriteFile,
        };
        rules = add_rule(rules, &entry.descriptor, access, entry.is_directory)?;
    }
    for path in &reach.writable {
        let beneath = PathFd::new(path).map_err(to_io_error)?;
        rules = add_rule(rules, beneath, write, path.is_dir())?;
    }
    Ok(rules.into())
}

fn add_rule(
    rules: RulesetCreated,
    beneath: impl AsFd,
    access: BitFlags<AccessFs>,
    is_directory: bool,
) -> io::Result<RulesetCreated> {
    // What cannot be said of a file is left out for one.
    let access = if is_directory { access } else { access & AccessFs::from_file(LANDLOCK) };
    rules.add_rule(PathBeneath::new(beneath, access)).map_err(to_io_error)
}

fn to_io_error(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

/// Whether a user has processes; the kernel knows without looking at each of them.
pub fn has_processes(uid: u32) -> bool {
    let uid = rustix::process::Uid::from_raw(uid);
    rustix::process::getpriority_user(uid) != Err(rustix::io::Errno::SRCH)
}

/// Kills every process of a user, as far as they exist now; returns how many there were. The user
/// is one like that of a [`PrivateUser`], whose processes have one id in all roles and no way to
/// change it.
pub fn kill_processes_of(uid: u32) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let pids = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // Unlike the files in it, the directory of a process belongs to its effective user also
        // where it may not be dumped (`task_dump_owner` of the kernel's fs/proc/base.c). To read
        // `status` of every process takes ten times as long.
        (entry.metadata().ok()?.uid() == uid).then_some(pid)
    });
    pids.filter(|pid| kill_if_owned_by(*pid, uid)).count()
}

fn kill_if_owned_by(pid: i32, uid: u32) -> bool {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // Looked at when it is held: the pid cannot turn to another process any more.
    match pidfd.filter(|_| user_of(pid) == Some(uid)) {
        Some(held) => pidfd_send_signal(&held, Signal::KILL).is_ok(),
        None => false,
    }
}

/// The real user id of a process that has not ended.
pub fn user_of(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()
    };
    if matches!(value("State:"), Some("Z" | "X")) {
        return None;
    }
    value("Uid:")?.parse().ok()
}

#[cfg(test)]
mod tests;
