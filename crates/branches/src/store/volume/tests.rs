//! Directories that the user of a branch closes, also to itself, where Egret is that user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use egret_base::Timestamp;
use egret_linux::directory::DEPTH_MAX;
use egret_postgres_test::owner;

use super::tenant::{TenantCopy, measure};
use super::*;
use crate::model::BranchId;

/// Set in a test that runs as an unprivileged user: where a directory of root's is, closed to
/// others.
const UNPRIVILEGED: &str = "EGRET_TEST_CLOSED_DIRECTORIES";

const MIB: u64 = 1 << 20;

/// Modes of which each takes a right from the owner.
const CLOSED: [u32; 5] = [0o000, 0o300, 0o400, 0o500, 0o600];

fn set_mode(path: &Path, mode: u32) {
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(path, permissions).unwrap();
}

/// Whether this process is not root. As root, the test of this module is run again as another user,
/// with a data directory that holds a directory of root's.
fn is_unprivileged(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var(UNPRIVILEGED).is_err(), "root is left");
    let place = tempfile::tempdir().unwrap();
    let foreign = place.path().join("data/foreign");
    fs::create_dir_all(&foreign).unwrap();
    set_mode(&foreign, 0o700);
    for open in [place.path(), &place.path().join("data")] {
        set_mode(open, 0o755);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("store::volume::tests::{test}")])
        .arg("--nocapture")
        .env(UNPRIVILEGED, place.path().join("data"));
    let output = owner().apply(&mut command).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("1 passed"), "{said}{errors}");
    false
}

/// A data directory with 1 MiB in `directory/below/file`.
fn data_below(place: &Path, name: &str) -> PathBuf {
    let data = place.join(name);
    let below = data.join("directory/below");
    fs::create_dir_all(&below).unwrap();
    fs::write(below.join("file"), vec![1; 1 << 20]).unwrap();
    data
}

fn copy_of(path: &Path, number: u8) -> TenantCopy {
    TenantCopy {
        path: path.to_owned(),
        leftovers: Vec::new(),
        branch: Some(BranchId::new(Timestamp::from_micros(0), [number; 10])),
        since: Timestamp::from_micros(0),
    }
}

fn measured(root: &Path, copies: &[TenantCopy]) -> crate::core::tenant_disk::TenantDisk {
    let mounted = MountedVolume::new(new_volume(Driver::Copy), root.to_owned(), None);
    measure(&mounted, copies, &[]).unwrap()
}

#[test]
fn closed_directories_are_measured_and_removed_by_their_own_user() {
    if !is_unprivileged("closed_directories_are_measured_and_removed_by_their_own_user") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let volume = new_volume(Driver::Copy);
    let earlier = Timestamp::from_micros(0);
    for mode in CLOSED {
        let data = data_below(place.path(), "data");
        let close = || {
            for closed in ["directory/below", "directory", ""] {
                set_mode(&data.join(closed), mode);
            }
        };
        close();
        let disk_use = disk_use(&data).unwrap();
        assert!(disk_use.bytes >= MIB, "{mode:o}: {disk_use:?}");
        assert!(disk_use.uncounted.is_none(), "{mode:o}: {disk_use:?}");
        close();
        assert!(volume.diverged_bytes(&data, earlier).unwrap() >= MIB);
        close();
        let disk = measured(place.path(), &[copy_of(&data, 1)]);
        assert!(disk.bytes >= MIB && disk.uncounted.is_empty(), "{disk:?}");
        close();
        volume.remove(&data).unwrap();
        assert!(!data.exists());
    }
    let data = data_below(place.path(), "deep");
    let deep: PathBuf = (0..=DEPTH_MAX).map(|level| level.to_string()).collect();
    fs::create_dir_all(data.join("directory").join(deep)).unwrap();
    set_mode(&data.join("directory"), 0o600);
    let too_deep = find_uncounted(&data).unwrap().unwrap().to_string();
    assert!(too_deep.contains("nest deeper"), "{too_deep}");
}

#[test]
fn what_stays_closed_is_named_for_its_branch_and_others_are_measured() {
    if !is_unprivileged("what_stays_closed_is_named_for_its_branch_and_others_are_measured") {
        return;
    }
    // Only root can make a directory that another user cannot open up.
    let Some(foreign) = std::env::var_os(UNPRIVILEGED).map(PathBuf::from) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let data = data_below(place.path(), "data");
    let copies = [copy_of(&foreign, 1), copy_of(&foreign.join("foreign"), 2), copy_of(&data, 3)];
    let disk = measured(place.path(), &copies);
    let (one, two) = (copies[0].branch.unwrap(), copies[1].branch.unwrap());
    assert_eq!(disk.uncounted.len(), 2, "{disk:?}");
    assert!(disk.uncounted[&one].starts_with("Egret cannot read directory `foreign`"), "{disk:?}");
    assert!(disk.uncounted[&two].contains("directory `.`"), "{disk:?}");
    assert!(disk.bytes >= MIB, "{disk:?}");
}

#[test]
fn what_a_reset_has_staged_or_put_aside_is_counted_and_stops_no_branch() {
    let place = tempfile::tempdir().unwrap();
    let mut copy = copy_of(&data_below(place.path(), "data"), 1);
    let former = data_below(place.path(), "former");
    let deep: PathBuf = (0..=DEPTH_MAX).map(|level| level.to_string()).collect();
    fs::create_dir_all(former.join(deep)).unwrap();
    copy.leftovers = vec![place.path().join("staged"), former];
    let disk = measured(place.path(), std::slice::from_ref(&copy));
    assert!(disk.bytes >= 2 * MIB, "{disk:?}");
    assert_eq!(disk.branches[&copy.branch.unwrap()], disk.bytes);
    assert!(disk.uncounted.is_empty(), "{disk:?}");
}
