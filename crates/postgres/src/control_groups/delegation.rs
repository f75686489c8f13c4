//! The group that Egret was started in: whether it is Egret's to divide, and what can be given
//! below.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use egret_linux::cgroup::{ControlGroup, ancestry};

use super::{BRANCHES_PREFIX, MAIN_GROUP, end_and_remove};
use crate::postmaster::is_server_below;

/// The most rounds in which processes that were started meanwhile are moved.
const MOVE_ROUNDS: u32 = 100;

/// The most attempts to make a group that another Egret takes for one left behind and removes.
const MAKE_ROUNDS: u32 = 10;

/// How long another Egret may hold the lock, which it does for a moment to see whether a group is
/// left behind.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait between two attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Makes a group and locks it; `None` when another process keeps the lock.
pub(super) fn make_locked(group: &ControlGroup) -> io::Result<Option<File>> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    let mut rounds = 0;
    loop {
        group.create()?;
        match group.lock() {
            // Another Egret took it for one left behind, before it was locked.
            Err(error) if error.kind() == io::ErrorKind::NotFound && rounds < MAKE_ROUNDS => {
                rounds += 1;
            }
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOCK_PAUSE),
            locked => return locked,
        }
    }
}

/// Removes groups of Egrets that are gone, with their data directories or not.
pub(super) fn remove_abandoned(base: &ControlGroup) {
    for group in base.children().unwrap_or_default() {
        if !group.name().starts_with(BRANCHES_PREFIX) {
            continue;
        }
        let Ok(Some(_held)) = group.lock() else {
            continue;
        };
        // Servers in it may still be taken over.
        if !group.is_populated().unwrap_or(true) {
            end_and_remove(&group);
        }
    }
}

/// The control group below which Egret makes groups.
pub(super) struct BaseGroup {
    pub(super) group: ControlGroup,
    /// Egret's data directory, without symbolic links.
    data_dir: PathBuf,
}

impl BaseGroup {
    pub(super) fn new(group: ControlGroup, data_dir: &std::path::Path) -> Self {
        let data_dir = std::fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        Self { group, data_dir }
    }

    /// Refuses a group that others have processes in, unless it is the root of the hierarchy.
    pub(super) fn check_delegated(&self) -> Result<(), String> {
        let path = self.group.path().display();
        if self.group.is_root() {
            return Ok(());
        }
        let processes =
            self.group.processes().map_err(|error| format!("{path} cannot be read: {error}"))?;
        match processes.iter().find(|pid| !self.is_own(**pid)) {
            None => Ok(()),
            Some(foreign_pid) => Err(format!(
                "{path} is not delegated to Egret: process {foreign_pid} in it is not Egret's; with \
                 systemd set Delegate=yes"
            )),
        }
    }

    /// Whether a process descends from this one, or from a server that an earlier Egret started and
    /// left running.
    fn is_own(&self, pid: i32) -> bool {
        let own = std::process::id().cast_signed();
        ancestry(pid).any(|ancestor| ancestor == own || is_server_below(ancestor, &self.data_dir))
    }

    /// Gives the groups below `all` those of the wanted controllers that the base can give.
    pub(super) fn give_controllers(
        &self,
        all: &ControlGroup,
        controllers: &[&'static str],
        missing: &mut Vec<String>,
    ) -> BTreeSet<String> {
        let mut granted = BTreeSet::new();
        let there = self.group.controllers().unwrap_or_default();
        let enabled = self.group.subtree_controllers().unwrap_or_default();
        let mut main_move = None;
        for controller in controllers.iter().copied() {
            let mut grant = || -> Result<(), String> {
                if !there.contains(controller) {
                    let path = self.group.path().display();
                    return Err(format!("it is not available in {path}"));
                }
                if !enabled.contains(controller) {
                    main_move.get_or_insert_with(|| self.move_to_main_group()).clone()?;
                    let result = self.group.enable_controller(controller);
                    result.map_err(|error| error.to_string())?;
                }
                all.enable_controller(controller).map_err(|error| error.to_string())
            };
            match grant() {
                Ok(()) => drop(granted.insert(controller.to_owned())),
                Err(reason) => missing.push(format!("{controller} ({reason})")),
            }
        }
        granted
    }

    /// Moves Egret and its processes away, so that the group may give controllers to groups below.
    fn move_to_main_group(&self) -> Result<(), String> {
        if self.group.is_root() {
            return Ok(());
        }
        let main = self.group.child(MAIN_GROUP);
        let fail =
            |error: io::Error| format!("Egret cannot move to {}: {error}", main.path().display());
        main.create().map_err(fail)?;
        for _ in 0..MOVE_ROUNDS {
            self.check_delegated()?;
            let processes = self.group.processes().map_err(fail)?;
            if processes.is_empty() {
                return Ok(());
            }
            for pid in processes {
                match main.move_process(pid) {
                    Err(error)
                        if error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error()) =>
                    {
                        return Err(fail(error));
                    }
                    _ => {}
                }
            }
        }
        let path = self.group.path().display();
        Err(format!("other processes keep starting in {path}"))
    }
}
