//! Directories that the user of a branch closes to everybody, where Egret is that user.

use std::process::Command;

use egret_postgres::test_support::owner;

use super::*;

/// Set in the test that runs as an unprivileged user.
const UNPRIVILEGED: &str = "EGRET_TEST_CLOSED_DIRECTORIES";

const NAME: &str =
    "store::volume::tests::closed_directories_are_measured_and_removed_by_their_own_user";

fn close(path: &Path) {
    let nobody = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    fs::set_permissions(path, nobody).unwrap();
}

#[test]
fn closed_directories_are_measured_and_removed_by_their_own_user() {
    if rustix::process::geteuid().is_root() {
        assert!(std::env::var(UNPRIVILEGED).is_err(), "root is left");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", NAME, "--nocapture"])
            .env(UNPRIVILEGED, "1");
        let output = owner().apply(&mut command).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("1 passed"), "{said}{errors}");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let closed = data.join("closed");
    let deep: PathBuf = (0..=DEPTH_MAX).map(|level| level.to_string()).collect();
    fs::create_dir_all(closed.join(deep)).unwrap();
    fs::write(closed.join("file"), vec![1; 1 << 20]).unwrap();
    close(&closed);
    assert!(bytes_on_disk(&data).unwrap() >= 1 << 20);
    close(&closed);
    let too_deep = check_depth(&data).unwrap_err();
    assert!(too_deep.to_string().contains("nest deeper"), "{too_deep}");
    close(&closed);
    let volume = driver_for(Driver::Copy);
    let earlier = Timestamp::from_micros(0);
    assert!(volume.diverged_bytes(&data, earlier).unwrap() >= 1 << 20);
    close(&closed);
    close(&data);
    volume.remove(&data).unwrap();
    assert!(!data.exists());
}
