//! Files, directories and links of other users, each refused by its own name.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

const STRANGER: u32 = 4_242;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn text(result: Result<Metadata, TrustError>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "trusted".to_owned())
}

fn own(path: &Path) -> String {
    text(walk_path(path, rustix::process::geteuid().as_raw()))
}

#[test]
fn a_file_that_others_can_change_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("egret.toml");
    fs::write(&file, "x").unwrap();
    mode(&file, 0o644);
    assert_eq!(own(&file), "trusted");
    mode(&file, 0o646);
    assert!(own(&file).contains("egret.toml can be written by other users"));
    mode(&file, 0o644);
    mode(place.path(), 0o777);
    assert!(own(&file).contains("chmod go-w"), "{}", own(&file));
    mode(place.path(), 0o1777);
    assert_eq!(own(&file), "trusted");
    fs::hard_link(&file, place.path().join("second")).unwrap();
    assert!(own(&file).contains("hard link"), "{}", own(&file));
}

#[test]
fn what_another_user_owns_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("egret.toml");
    fs::write(&file, "x").unwrap();
    if !rustix::process::geteuid().is_root() {
        assert!(text(walk_path(&file, STRANGER)).contains("belongs to user id"));
        return;
    }
    std::os::unix::fs::chown(&file, Some(STRANGER), None).unwrap();
    assert!(own(&file).contains("belongs to user id 4242"));
    assert_eq!(text(walk_path(&file, STRANGER)), "trusted");
    // A link of another user leads where that user likes, no matter which user owns the target.
    let link = place.path().join("link");
    symlink("/etc/passwd", &link).unwrap();
    assert_eq!(own(&link), "trusted");
    std::os::unix::fs::lchown(&link, Some(STRANGER), None).unwrap();
    assert!(own(&link).contains("link belongs to user id 4242"));
}

#[test]
fn links_are_followed_within_bounds() {
    let place = tempfile::tempdir().unwrap();
    let (one, two) = (place.path().join("one"), place.path().join("two"));
    symlink("two", &one).unwrap();
    symlink("one", &two).unwrap();
    assert!(own(&one).contains("too many symbolic links"));
    let open = place.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::write(open.join("file"), "x").unwrap();
    mode(&open, 0o777);
    let link = place.path().join("link");
    symlink("open/../open/file", &link).unwrap();
    assert!(own(&link).contains("open can be written"), "{}", own(&link));
}

#[test]
fn a_program_is_taken_from_trusted_directories_only() {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("egret-test-program");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    mode(&program, 0o755);
    let find = |path: &Path| find_program_in("egret-test-program", path.as_os_str());
    assert_eq!(find(place.path()), Some(program.clone()));
    mode(place.path(), 0o777);
    assert_eq!(find(place.path()), None);
    assert_eq!(find(Path::new(".")), None);
    let found = find_program_in("sh", OsStr::new("."));
    assert!(found.is_some_and(|found| found.is_absolute()));
}
