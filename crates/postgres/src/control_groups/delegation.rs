//! The group that Egret was started in: whether it is Egret's to divide, and what can be given below.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;

use egret_linux::cgroup::{ControlGroup, is_own_descendant};

use super::{BRANCHES, MAIN, end};

/// How often processes that were started meanwhile are moved.
const MOVE_ROUNDS: u32 = 100;

/// How often a group is made that another Egret takes for one left behind.
const MAKE_ROUNDS: u32 = 10;

/// Refuses a group that others have processes in, unless it is the root of the hierarchy.
pub(super) fn check_delegated(base: &ControlGroup) -> Result<(), String> {
    let path = base.path().display();
    if base.is_root() {
        return Ok(());
    }
    let processes = base
        .processes()
        .map_err(|error| format!("{path} cannot be read: {error}"))?;
    match processes.iter().find(|pid| !is_own_descendant(**pid)) {
        None => Ok(()),
        Some(stranger) => Err(format!(
            "{path} is not delegated to Egret: process {stranger} in it is none of Egret's; with systemd set Delegate=yes"
        )),
    }
}

/// Makes a group and locks it; without a lock when another process has that.
pub(super) fn make_locked(group: &ControlGroup) -> io::Result<Option<File>> {
    let mut rounds = 0;
    loop {
        group.make()?;
        match group.lock() {
            // Another Egret took it for one left behind, before it was locked.
            Err(error) if error.kind() == io::ErrorKind::NotFound && rounds < MAKE_ROUNDS => {
                rounds += 1;
            }
            locked => return locked,
        }
    }
}

/// Removes groups of Egrets that are gone, with their data directories or not.
pub(super) fn remove_abandoned(base: &ControlGroup) {
    for group in base.children().unwrap_or_default() {
        if !group.name().starts_with(BRANCHES) {
            continue;
        }
        let Ok(Some(_held)) = group.lock() else {
            continue;
        };
        // Servers in it may still be taken over.
        if !group.is_populated().unwrap_or(true) {
            end(&group);
        }
    }
}

/// Gives the groups below `all` those of the wanted controllers that `base` can give.
pub(super) fn give_controllers(
    base: &ControlGroup,
    all: &ControlGroup,
    wanted: &[&'static str],
    missing: &mut Vec<String>,
) -> BTreeSet<String> {
    let mut given = BTreeSet::new();
    let there = base.controllers().unwrap_or_default();
    let below = base.controllers_below().unwrap_or_default();
    let mut way = None;
    for controller in wanted.iter().copied() {
        let mut give = || -> Result<(), String> {
            if !there.contains(controller) {
                let path = base.path().display();
                return Err(format!("{path} does not have it"));
            }
            if !below.contains(controller) {
                way.get_or_insert_with(|| make_way(base)).clone()?;
                base.give_below(controller)
                    .map_err(|error| error.to_string())?;
            }
            all.give_below(controller)
                .map_err(|error| error.to_string())
        };
        match give() {
            Ok(()) => drop(given.insert(controller.to_owned())),
            Err(reason) => missing.push(format!("{controller} ({reason})")),
        }
    }
    given
}

/// Moves Egret and its processes out of `base`, so that it may give controllers to groups below.
fn make_way(base: &ControlGroup) -> Result<(), String> {
    if base.is_root() {
        return Ok(());
    }
    let main = base.child(MAIN);
    let fail =
        |error: io::Error| format!("Egret cannot move to {}: {error}", main.path().display());
    main.make().map_err(fail)?;
    for _ in 0..MOVE_ROUNDS {
        check_delegated(base)?;
        let processes = base.processes().map_err(fail)?;
        if processes.is_empty() {
            return Ok(());
        }
        for pid in processes {
            match main.take_in(pid) {
                Err(error)
                    if error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error()) =>
                {
                    return Err(fail(error));
                }
                _ => {}
            }
        }
    }
    Err(format!(
        "processes are started in {} again and again",
        base.path().display()
    ))
}
