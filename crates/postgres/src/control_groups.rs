//! Bounds of memory, processor time and processes for whole servers: control groups of version 2.
//!
//! ```text
//! <base>/                            the group that Egret was started in
//! <base>/egret-main/                 Egret and the source, where <base> is not the root
//! <base>/egret-branches-<16 hex>/    all branches of one data directory, with their common bounds
//! <base>/egret-branches-…/<id>-<n>/  one start of one server
//! ```
//!
//! A server is in its group before it executes anything, so that nothing it starts is outside. Only
//! the root of the hierarchy may have processes and give controllers to groups below; elsewhere
//! Egret moves to a group of its own first, and only where `<base>` holds nothing but Egret's
//! processes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::Condition;
use egret_base::settings::ByteSize;
use egret_base::sync::lock;
use egret_linux::cgroup::{ControlGroup, Entrance};
use sha2::{Digest, Sha256};

use crate::error::PostgresError;

mod bounds;
mod delegation;

use bounds::{Bound, Presence};
use delegation::{BaseGroup, make_locked, remove_abandoned};

/// What bounds memory, processor time and processes.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// Where Egret and the source go.
const MAIN_GROUP: &str = "egret-main";

/// What names of groups for branches begin with.
const BRANCHES_PREFIX: &str = "egret-branches-";

/// How many processes a server of PostgreSQL 15 to 18 needs to start and to open a session, and
/// some more: with fewer, it would fail while it starts, as if it were broken. The least value of
/// `branches.total_processes_max`.
const SERVER_PROCESSES: u64 = 10;

/// How long killed processes may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a group that is to be removed may have processes that are ending.
const REMOVE_TIMEOUT: Duration = Duration::from_millis(200);

/// How many groups of one server can be there at a time: one, and what was not removed.
const STARTS_MAX: u32 = 1_000;

/// Whether servers get control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPolicy {
    /// No server gets a control group.
    Off,
    /// Servers get groups and limits where and as far as they work.
    Auto,
    /// Each server gets a group with all limits, or it is not started.
    Full,
}

/// The bounds that an operator sets.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimits {
    /// Memory of each server, with what the kernel caches for it.
    pub memory_max: ByteSize,
    /// Memory of all servers together.
    pub total_memory_max: ByteSize,
    /// Processor time of each server, in percent of one core; 0 for no bound.
    pub cpu_percent_max: u32,
    /// Share of all servers together in processor time that is short; Egret and the source have
    /// 100.
    pub total_cpu_weight: u32,
    /// Processes and threads of each server.
    pub processes_max: u32,
    /// Processes and threads of all servers together.
    pub total_processes_max: u32,
}

/// The control groups of servers, or why there are none.
#[derive(Debug)]
pub struct ControlGroups {
    groups: Result<Arc<ServerGroups>, String>,
    /// Controllers that groups do not have, and why.
    missing: Vec<String>,
    policy: GroupPolicy,
    limits: GroupLimits,
    /// Holds while a server runs without its group.
    not_bounded: Condition,
}

/// The group of all servers, and those of each.
#[derive(Debug)]
struct ServerGroups {
    all_servers: ControlGroup,
    /// The name of `all` in earlier versions of Egret, of which servers may have been left running.
    former_group: ControlGroup,
    controllers: BTreeSet<String>,
    /// Held against other Egrets, which remove groups whose lock is free; `None` once the group is
    /// removed.
    lock: Mutex<Option<File>>,
    /// Names of groups with a server of this Egret.
    leased_names: Mutex<BTreeSet<String>>,
}

/// The control group of one server.
#[derive(Debug)]
pub(crate) struct GroupLease {
    group: ControlGroup,
    groups: Arc<ServerGroups>,
}

impl ControlGroups {
    /// Makes the group of all servers of a data directory below this process's own.
    pub fn open(policy: GroupPolicy, limits: GroupLimits, data_dir: &Path) -> Self {
        let own = match policy {
            GroupPolicy::Off => Err("branches.cgroup is off".to_owned()),
            GroupPolicy::Auto | GroupPolicy::Full => ControlGroup::own(),
        };
        Self::open_below(own, policy, limits, data_dir, &CONTROLLERS)
    }

    fn open_below(
        own: Result<ControlGroup, String>,
        policy: GroupPolicy,
        limits: GroupLimits,
        data_dir: &Path,
        controllers: &[&'static str],
    ) -> Self {
        let mut missing = Vec::new();
        let state = own.and_then(|own| {
            let groups = ServerGroups::open(&own, data_dir, controllers, &mut missing)?;
            let limited = groups.apply_bounds(&groups.all_servers, bounds::bounds_for_all(&limits));
            limited.map_err(|error| {
                groups.remove();
                format!("the limits of all branches cannot be set: {error}")
            })?;
            Ok(Arc::new(groups))
        });
        Self {
            groups: state,
            missing,
            policy,
            limits,
            not_bounded: Condition::new("branches_not_bounded", "branches"),
        }
    }

    /// Whether memory, processor time and processes of servers are bounded.
    pub fn is_complete(&self) -> bool {
        self.groups.is_ok() && self.missing.is_empty()
    }

    /// Describes what is bounded on this machine, for an operator.
    pub fn describe(&self) -> String {
        let groups = match &self.groups {
            Ok(groups) => groups,
            Err(reason) => return format!("NONE ({reason})"),
        };
        let limits = &self.limits;
        let mut bounds = Vec::new();
        if groups.has_controller("memory") {
            let (each, all) = (limits.memory_max, limits.total_memory_max);
            bounds.push(format!("memory {each} each and {all} in all"));
        }
        if groups.has_controller("cpu") {
            let weight = limits.total_cpu_weight;
            bounds.push(match limits.cpu_percent_max {
                0 => format!("processor time by weight {weight}"),
                percent => format!("processor time {percent}% each, by weight {weight} in all"),
            });
        }
        if groups.has_controller("pids") {
            let (each, all) = (limits.processes_max, limits.total_processes_max);
            bounds.push(format!("{each} processes each and {all} in all"));
        }
        if !self.missing.is_empty() {
            bounds.push(format!("NOT bounded: {}", self.missing.join("; ")));
        }
        let path = groups.all_servers.path().display();
        format!("control groups in {path}: {}", bounds.join(", "))
    }

    /// Makes the group of a server that is about to start on `data`, with its limits; `None` where
    /// there are no groups.
    ///
    /// # Errors
    /// [`PostgresError::NoProcessLeft`]; [`PostgresError::Io`] where every server is to have a
    /// group.
    pub(crate) fn lease(
        &self,
        data: &Path,
        nice: u16,
    ) -> Result<Option<GroupLease>, PostgresError> {
        let Ok(groups) = &self.groups else {
            return Ok(None);
        };
        let processes = groups.count_processes() + SERVER_PROCESSES;
        if groups.has_controller("pids") && processes > u64::from(self.limits.total_processes_max) {
            return Err(PostgresError::NoProcessLeft { max: self.limits.total_processes_max });
        }
        match self.lease_from(groups, data, nice) {
            Ok(lease) => {
                self.not_bounded.recover("branches have control groups again");
                Ok(Some(lease))
            }
            Err(error) if self.policy == GroupPolicy::Full => {
                Err(crate::error::io_error("make a control group for", data)(error))
            }
            Err(error) => {
                let message = "a branch runs without a control group of its own";
                self.not_bounded.fail(error, message);
                Ok(None)
            }
        }
    }

    fn lease_from(
        &self,
        groups: &Arc<ServerGroups>,
        data: &Path,
        nice: u16,
    ) -> io::Result<GroupLease> {
        let lease = GroupLease {
            group: groups.create_server_group(server_name(data))?,
            groups: groups.clone(),
        };
        match groups.apply_bounds(&lease.group, bounds::bounds_for_server(&self.limits, nice)) {
            Ok(()) => Ok(lease),
            Err(error) => {
                lease.release();
                Err(error)
            }
        }
    }

    /// The group of a process that an earlier Egret started in one of these.
    pub(crate) fn lease_of_process(&self, pid: i32) -> Option<GroupLease> {
        let groups = self.groups.as_ref().ok()?;
        let group = ControlGroup::of_process(pid).ok()?;
        let parent = group.parent()?;
        if parent != groups.all_servers && parent != groups.former_group {
            return None;
        }
        lock(&groups.leased_names).insert(group.name().to_owned());
        Some(GroupLease { group, groups: groups.clone() })
    }

    /// Ends and removes groups that an earlier Egret left behind and whose server was not taken
    /// over; those of the former name may be another Egret's. Returns how many there were.
    pub fn remove_leftovers(&self) -> usize {
        let Ok(groups) = &self.groups else {
            return 0;
        };
        let taken = lock(&groups.leased_names).clone();
        let children = groups.all_servers.children().unwrap_or_default();
        let leftovers = children.iter().filter(|group| !taken.contains(group.name()));
        leftovers.filter(|group| end_and_remove(group)).count()
    }

    /// How many processes of servers the kernel has killed because memory was at its limit.
    pub fn memory_kills(&self) -> u64 {
        let groups = self.groups.as_ref().ok();
        groups.map_or(0, |groups| memory_kills(&groups.all_servers))
    }

    /// Removes the groups, those of servers that still run excepted.
    pub fn remove(&self) {
        if let Ok(groups) = &self.groups {
            groups.remove();
        }
    }
}

impl ServerGroups {
    /// The group of a data directory below the own group, with those of the wanted controllers that
    /// can be had; the others go to `missing`.
    fn open(
        own: &ControlGroup,
        data_dir: &Path,
        wanted: &[&'static str],
        missing: &mut Vec<String>,
    ) -> Result<Self, String> {
        let fail = |error| format!("{} cannot be examined: {error}", data_dir.display());
        let name = group_name(data_dir).map_err(fail)?;
        let former = former_group_name(data_dir).map_err(fail)?;
        let group = match own.parent() {
            Some(parent) if own.name() == MAIN_GROUP => parent,
            _ => own.clone(),
        };
        let base = BaseGroup::new(group, data_dir);
        base.check_delegated()?;
        remove_abandoned(&base.group);
        let all = base.group.child(&name);
        let path = all.path().display();
        let lock = make_locked(&all)
            .map_err(|error| format!("cannot create {path}: {error}"))?
            .ok_or_else(|| format!("another process has locked {path}"))?;
        let groups = Self {
            controllers: base.give_controllers(&all, wanted, missing),
            former_group: base.group.child(&former),
            all_servers: all,
            lock: Mutex::new(Some(lock)),
            leased_names: Mutex::default(),
        };
        match groups.probe() {
            Ok(()) => Ok(groups),
            Err(error) => {
                groups.remove();
                Err(format!("no process can be put into a group: {error}"))
            }
        }
    }

    fn probe(&self) -> io::Result<()> {
        let group = self.all_servers.child("probe");
        group.create()?;
        let entered = group.open_entrance().and_then(Entrance::try_enter);
        group.kill_and_remove(END_TIMEOUT)?;
        entered
    }

    fn has_controller(&self, controller: &str) -> bool {
        self.controllers.contains(controller)
    }

    /// How many processes and threads of all servers there are, those in the group of the former
    /// name included.
    fn count_processes(&self) -> u64 {
        let count = |group: &ControlGroup| -> Option<u64> {
            let text = std::fs::read_to_string(group.path().join("pids.current")).ok()?;
            text.trim().parse().ok()
        };
        [&self.all_servers, &self.former_group].into_iter().filter_map(count).sum()
    }

    /// Sets those bounds whose controllers groups have.
    fn apply_bounds(&self, group: &ControlGroup, bounds: Vec<Bound>) -> io::Result<()> {
        for bound in bounds {
            if !self.has_controller(bound.controller) {
                continue;
            }
            match group.write_file(bound.file, &bound.value) {
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && bound.presence == Presence::Optional => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// A group that no server has or had: the end of an earlier start must not end this one.
    fn create_server_group(&self, server: &str) -> io::Result<ControlGroup> {
        let mut leased_names = lock(&self.leased_names);
        for number in 1..=STARTS_MAX {
            let name = format!("{server}-{number}");
            let group = self.all_servers.child(&name);
            if !leased_names.contains(&name) && group.create()? {
                leased_names.insert(name);
                return Ok(group);
            }
        }
        Err(io::Error::other("too many control groups of this server still exist"))
    }

    /// Removes the groups without processes, and with the last one the common group, which is
    /// another Egret's to make from then on.
    fn remove(&self) {
        let mut lock_file = lock(&self.lock);
        if lock_file.is_none() {
            return;
        }
        for group in self.all_servers.children().unwrap_or_default() {
            // Processes that are killed take a moment to end.
            if group.await_empty(REMOVE_TIMEOUT).unwrap_or(false) {
                end_and_remove(&group);
            }
        }
        match self.all_servers.remove() {
            Ok(()) => *lock_file = None,
            Err(error) => {
                tracing::debug!(%error, "cannot remove the common control group: servers still use it")
            }
        }
    }
}

impl Drop for ServerGroups {
    fn drop(&mut self) {
        // Servers that outlive this process keep their groups, and are adopted with them.
        self.remove();
    }
}

impl GroupLease {
    /// What a server enters it by.
    pub(crate) fn entrance(&self) -> io::Result<Entrance> {
        self.group.open_entrance()
    }

    /// Kills every process in it, whatever the server knows of.
    pub(crate) fn kill_processes(&self) {
        if let Err(error) = self.group.kill() {
            tracing::debug!(%error, group = self.group.name(), "cannot kill the processes of a control group");
        }
    }

    /// How many processes of the server the kernel has killed because memory was at its limit.
    pub(crate) fn memory_kills(&self) -> u64 {
        memory_kills(&self.group)
    }

    /// Ends what is left in it and removes it, after the server has ended or failed to start.
    pub(crate) fn release(self) {
        if end_and_remove(&self.group) {
            lock(&self.groups.leased_names).remove(self.group.name());
        }
    }
}

/// Ends a group with everything in it; returns whether it is gone.
fn end_and_remove(group: &ControlGroup) -> bool {
    match group.kill_and_remove(END_TIMEOUT) {
        // Another thread may have ended it meanwhile.
        Err(error) if group.path().exists() => {
            let path = group.path().display();
            tracing::debug!(%error, %path, "cannot remove a control group");
            false
        }
        _ => true,
    }
}

fn memory_kills(group: &ControlGroup) -> u64 {
    // There is no such file without the controller.
    group.read_count("memory.events", "oom_kill").unwrap_or(0)
}

/// The name of the group of all servers of a data directory. By its path alone, two directories of
/// different mount namespaces would share a group.
fn group_name(data_dir: &Path) -> io::Result<String> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    let canonical = std::fs::canonicalize(data_dir)?;
    let directory = std::fs::metadata(&canonical)?;
    let digest = Sha256::new()
        .chain_update(directory.dev().to_le_bytes())
        .chain_update(directory.ino().to_le_bytes())
        .chain_update(canonical.as_os_str().as_bytes())
        .finalize();
    Ok(name_from_digest(&digest))
}

/// The name by the path alone, which earlier versions of Egret gave that group.
fn former_group_name(data_dir: &Path) -> io::Result<String> {
    use std::os::unix::ffi::OsStrExt;
    let canonical = std::fs::canonicalize(data_dir)?;
    Ok(name_from_digest(&Sha256::digest(canonical.as_os_str().as_bytes())))
}

fn name_from_digest(digest: &[u8]) -> String {
    let hex: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{BRANCHES_PREFIX}{hex}")
}

/// What the groups of a server are named after: its data directory, which has the name of an id.
fn server_name(data: &Path) -> &str {
    let name = data.file_name().and_then(|name| name.to_str());
    let is_safe = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric());
    name.filter(is_safe).unwrap_or("server")
}

#[cfg(test)]
mod tests;
