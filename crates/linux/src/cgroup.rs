//! Control groups of version 2 (cgroups(7)): where this process is, groups below, their limits,
//! their processes, and their end.
//!
//! Every file of a group is a few bytes that the kernel makes up when it is read, so that each call
//! here takes some microseconds. Moving a running process is the exception: the kernel may wait for
//! an RCU grace period, which takes milliseconds.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::trial;

/// A control group: a directory of the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    path: PathBuf,
}

impl ControlGroup {
    /// The group of this process.
    ///
    /// # Errors
    /// In words, when no hierarchy of version 2 is mounted or its mount does not show the group.
    pub fn own() -> Result<Self, String> {
        Self::from_proc("self")
    }

    /// The group of another process.
    ///
    /// # Errors
    /// As [`ControlGroup::own`], and when there is no such process.
    pub fn of_process(pid: i32) -> Result<Self, String> {
        Self::from_proc(&pid.to_string())
    }

    fn from_proc(process: &str) -> Result<Self, String> {
        let read = |path: String| {
            fs::read_to_string(&path).map_err(|error| format!("{path} cannot be read: {error}"))
        };
        let membership = read(format!("/proc/{process}/cgroup"))?;
        let mounts = read("/proc/self/mountinfo".to_owned())?;
        let path = locate(&membership, &mounts)?;
        Ok(Self { path })
    }

    /// Path of the group's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last part of its path.
    pub fn name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.unwrap_or_default()
    }

    /// The group of this name below this one, which need not exist.
    ///
    /// # Panics
    /// When the name could be that of a file of the kernel's, or of another directory.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '-';
        assert!(
            !name.is_empty() && name.chars().all(is_safe),
            "a name of letters, digits and `-`, and so without the dot of the kernel's files"
        );
        Self { path: self.path.join(name) }
    }

    /// The group above this one.
    pub fn parent(&self) -> Option<Self> {
        let path = self.path.parent()?.to_owned();
        Some(Self { path })
    }

    /// The groups below this one.
    pub fn children(&self) -> io::Result<Vec<Self>> {
        let mut children = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                children.push(Self { path: entry.path() });
            }
        }
        Ok(children)
    }

    /// Whether it is the root of the whole hierarchy, which alone may have processes and give
    /// controllers to groups below it at a time. The kernel makes some files everywhere but there.
    pub fn is_root(&self) -> bool {
        !self.path.join("cgroup.type").exists()
    }

    /// Creates the group; an existing one is left as it is. Returns whether it is new.
    pub fn create(&self) -> io::Result<bool> {
        match fs::create_dir(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Locks it against other processes that look for groups left behind, until the file is closed;
    /// `None` when another process has it.
    ///
    /// # Errors
    /// The kernel's, also when the group does not exist, or was removed by the last holder of the
    /// lock.
    pub fn lock(&self) -> io::Result<Option<File>> {
        use rustix::fs::{FlockOperation, flock};
        let directory = File::open(&self.path)?;
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // It may have been removed, and made again, after it was opened.
        let (opened_metadata, current_metadata) =
            (directory.metadata()?, fs::metadata(&self.path)?);
        if (opened_metadata.dev(), opened_metadata.ino())
            == (current_metadata.dev(), current_metadata.ino())
        {
            Ok(Some(directory))
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    /// The controllers that can be given to groups below it.
    pub fn controllers(&self) -> io::Result<BTreeSet<String>> {
        self.read_words("cgroup.controllers")
    }

    /// The controllers that groups below it have.
    pub fn subtree_controllers(&self) -> io::Result<BTreeSet<String>> {
        self.read_words("cgroup.subtree_control")
    }

    /// Gives a controller to the groups below it.
    ///
    /// # Errors
    /// The kernel's: EBUSY where it has processes and is not the root.
    pub fn enable_controller(&self, controller: &str) -> io::Result<()> {
        self.write_file("cgroup.subtree_control", &format!("+{controller}"))
    }

    /// Writes one of its files, such as `memory.max`.
    ///
    /// # Errors
    /// The kernel's: there is no such file where the group lacks the controller.
    pub fn write_file(&self, file: &str, value: &str) -> io::Result<()> {
        // Opened without O_CREAT, which cgroupfs refuses with another error than that it is
        // missing.
        let file = File::options().write(true).open(self.path.join(file))?;
        rustix::io::write(&file, value.as_bytes())?;
        Ok(())
    }

    /// A count in one of its files of keys and values, such as `oom_kill` in `memory.events`.
    pub fn read_count(&self, file: &str, key: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.path.join(file))?;
        Ok(value_of(&text, key).unwrap_or(0))
    }

    /// The processes in it, without those of groups below.
    pub fn processes(&self) -> io::Result<Vec<i32>> {
        let text = fs::read_to_string(self.path.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Moves a process with all its threads into it.
    ///
    /// # Errors
    /// The kernel's: ESRCH where the process has ended.
    pub fn move_process(&self, pid: i32) -> io::Result<()> {
        self.write_file("cgroup.procs", &pid.to_string())
    }

    /// Opens the group for a child that is to enter it.
    pub fn open_entrance(&self) -> io::Result<Entrance> {
        let processes = self.path.join("cgroup.procs");
        Ok(Entrance {
            directory: File::open(&self.path)?.into(),
            processes: File::options().write(true).open(processes)?.into(),
        })
    }

    /// Kills every process in it and below; returns before they have ended.
    pub fn kill(&self) -> io::Result<()> {
        match self.write_file("cgroup.kill", "1") {
            // Linux before 5.14.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.path.exists() => {
                self.kill_one_by_one()
            }
            result => result,
        }
    }

    fn kill_one_by_one(&self) -> io::Result<()> {
        for pid in self.processes()? {
            let pidfd = Pid::from_raw(pid)
                .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
            // Looked at again when it is held: the pid cannot turn to another process any more.
            if let Some(held) = pidfd.filter(|_| Self::of_process(pid).as_ref() == Ok(self)) {
                // One that has ended meanwhile needs no killing.
                let _ = rustix::process::pidfd_send_signal(&held, Signal::KILL);
            }
        }
        for child in self.children()? {
            child.kill_one_by_one()?;
        }
        Ok(())
    }

    /// Whether it or a group below has processes.
    pub fn is_populated(&self) -> io::Result<bool> {
        Ok(self.read_count("cgroup.events", "populated")? != 0)
    }

    /// Waits until neither it nor a group below has processes; returns whether that is so.
    pub fn await_empty(&self, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        let events = File::open(self.path.join("cgroup.events"))?;
        loop {
            let mut text = [0; 128];
            let length = rustix::io::pread(&events, &mut text, 0)?;
            let text = String::from_utf8_lossy(&text[..length]);
            if value_of(&text, "populated") == Some(0) {
                return Ok(true);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(false);
            }
            // The kernel notes a change of the file since it was last read.
            let mut changes = [PollFd::new(&events, PollFlags::PRI)];
            let poll_timeout = Timespec {
                tv_sec: i64::try_from(remaining.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: remaining.subsec_nanos().into(),
            };
            match rustix::event::poll(&mut changes, Some(&poll_timeout)) {
                Err(error) if error != rustix::io::Errno::INTR => return Err(error.into()),
                _ => {}
            }
        }
    }

    /// Removes it, without processes and groups below; one that does not exist is none the less
    /// gone.
    ///
    /// # Errors
    /// The kernel's: EBUSY where it has processes or groups below.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Kills every process in it and below, waits for their ends and removes it with the groups
    /// below.
    ///
    /// # Errors
    /// The kernel's: EBUSY where a process has not ended within `timeout`.
    pub fn kill_and_remove(&self, timeout: Duration) -> io::Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        if self.is_populated()? {
            self.kill()?;
            self.await_empty(timeout)?;
        }
        self.remove_with_children()
    }

    fn remove_with_children(&self) -> io::Result<()> {
        for child in self.children()? {
            child.remove_with_children()?;
        }
        self.remove()
    }

    fn read_words(&self, file: &str) -> io::Result<BTreeSet<String>> {
        let text = fs::read_to_string(self.path.join(file))?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }
}

/// A group and the list of its processes, open. They can be used after the right to open them is
/// given up.
#[derive(Debug)]
pub struct Entrance {
    directory: OwnedFd,
    processes: OwnedFd,
}

impl Entrance {
    /// Moves the calling process into the group: a bare system call, for a child before exec.
    pub fn enter(&self) -> io::Result<()> {
        rustix::io::write(self.processes.as_fd(), b"0")?;
        Ok(())
    }

    /// The group as clone3(2) takes it, by which a process is made inside of it.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Tries to enter with a child that ends before it runs a program.
    ///
    /// # Errors
    /// The kernel's: for instance EACCES where the group above is another user's.
    pub fn try_enter(self) -> io::Result<()> {
        #[expect(unsafe_code, reason = "only system calls may follow a fork")]
        // SAFETY: the closure runs in the forked child before exec: it makes one bare system call,
        // takes no lock, and allocates nothing.
        unsafe {
            trial::try_in_child(move || self.enter())
        }
    }
}

/// A process and those that it descends from, the nearest first, as far as those between them live.
pub fn ancestry(pid: i32) -> impl Iterator<Item = i32> {
    let above = |pid: &i32| parent_of(*pid).filter(|parent| *parent > 0);
    // A chain of parents is short; a pid that is reused while it is followed could make it a
    // circle.
    std::iter::successors(Some(pid), above).take(1_000)
}

fn parent_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// The value of a key in lines of keys and values.
fn value_of(text: &str, key: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value)
}

/// Finds the directory of a group by /proc/PID/cgroup and /proc/PID/mountinfo
/// (proc_pid_mountinfo(5)).
fn locate(membership: &str, mounts: &str) -> Result<PathBuf, String> {
    let group = membership
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or("the kernel has no control groups of version 2")?;
    let mut has_hierarchy = false;
    for line in mounts.lines() {
        let Some((fields, kind)) = line.split_once(" - ") else {
            continue;
        };
        if kind.split(' ').next() != Some("cgroup2") {
            continue;
        }
        has_hierarchy = true;
        let mut fields = fields.split(' ').skip(3);
        let (Some(root), Some(mount_point)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, place) = (unescape(root), unescape(mount_point));
        let relative_path = Path::new(group).strip_prefix(&root);
        if let Ok(below) = relative_path
            && !group.starts_with("/..")
        {
            // Joined only where there is something: the path would end with a slash.
            return Ok(if below.as_os_str().is_empty() { place } else { place.join(below) });
        }
    }
    Err(if has_hierarchy {
        format!("the control group of this process, {group}, is not shown by the mounted hierarchy")
    } else {
        "no hierarchy of control groups of version 2 is mounted".to_owned()
    })
}

/// A path of mountinfo, in which blanks and backslashes are written as octal numbers.
fn unescape(text: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let unescaped = escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    PathBuf::from(unescaped)
}

#[cfg(test)]
mod tests;
