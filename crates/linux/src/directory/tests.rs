//! An open directory is stayed in, and links are neither followed nor mistaken for something else.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::test_support::is_unprivileged;

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// A directory `here` and, beside it, `elsewhere` with a file that must stay as it is.
fn two_directories() -> (tempfile::TempDir, Directory) {
    let both = tempfile::tempdir().unwrap();
    std::fs::create_dir(both.path().join("here")).unwrap();
    std::fs::create_dir(both.path().join("elsewhere")).unwrap();
    std::fs::write(both.path().join("elsewhere/kept"), "theirs").unwrap();
    let here = Directory::open(&both.path().join("here")).unwrap();
    (both, here)
}

fn names(directory: &Directory) -> Vec<OsString> {
    directory.names().unwrap().map(Result::unwrap).collect()
}

fn kept(both: &tempfile::TempDir) -> String {
    std::fs::read_to_string(both.path().join("elsewhere/kept")).unwrap()
}

#[test]
fn links_are_not_entered_read_or_written_through() {
    let (both, here) = two_directories();
    let elsewhere = both.path().join("elsewhere");
    let link = |what: &str, target: &Path| {
        std::os::unix::fs::symlink(target, both.path().join("here").join(what)).unwrap();
    };
    link("directory", &elsewhere);
    link("file", &elsewhere.join("kept"));
    link("missing", &elsewhere.join("made"));
    assert_eq!(here.kind(name("directory")).unwrap(), Kind::Link);
    here.enter(name("directory")).unwrap_err();
    here.open_file(name("file")).unwrap_err();
    here.create_file(name("missing")).unwrap_err();
    here.clear().unwrap();
    assert_eq!(names(&here), Vec::<OsString>::new());
    assert_eq!(kept(&both), "theirs");
    assert!(!elsewhere.join("made").exists());
}

#[test]
fn a_directory_that_is_swapped_for_a_link_stays_the_one_that_was_opened() {
    let (both, here) = two_directories();
    let inside = here.create(name("inside")).unwrap();
    here.rename(name("inside"), name("aside")).unwrap();
    let link = both.path().join("here/inside");
    std::os::unix::fs::symlink(both.path().join("elsewhere"), link).unwrap();
    inside.create_file(name("new")).unwrap();
    inside.clear().unwrap();
    inside.create_file(name("newer")).unwrap();
    let aside = here.enter(name("aside")).unwrap();
    assert_eq!(names(&aside), vec![name("newer").to_owned()]);
    assert_eq!(kept(&both), "theirs");
    here.remove(name("inside")).unwrap();
    here.remove(name("inside")).unwrap();
    here.remove(name("aside")).unwrap();
    assert_eq!(names(&here), Vec::<OsString>::new());
}

#[test]
fn a_pipe_is_no_file_and_is_not_waited_for() {
    let (both, here) = two_directories();
    let path = both.path().join("here/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, PRIVATE_MODE, 0).unwrap();
    assert_eq!(here.kind(name("pipe")).unwrap(), Kind::Other);
    let error = here.open_file(name("pipe")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_tree_of_any_depth_is_removed_with_few_levels_open() {
    let (both, here) = two_directories();
    let mut deepest = here.create(name("deep")).unwrap();
    for _ in 0..1_000 {
        deepest.create_file(name("file")).unwrap();
        deepest = deepest.create(name("deep")).unwrap();
    }
    drop(deepest);
    // A name that is taken already where directories are moved to.
    here.create_file(name(".egret-moved-0")).unwrap();
    let full = here.create(name(".egret-moved-1")).unwrap();
    full.create_file(name("file")).unwrap();
    here.clear().unwrap();
    assert_eq!(names(&here), Vec::<OsString>::new());
    assert_eq!(kept(&both), "theirs");
}

#[test]
fn directories_that_keep_their_own_user_out_are_removed() {
    if !is_unprivileged("directory::tests::directories_that_keep_their_own_user_out_are_removed") {
        return;
    }
    let (both, here) = two_directories();
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let mut place = both.path().join("here");
    for level in 0..DEPTH_MAX + 5 {
        place.push(level.to_string());
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("file"), "").unwrap();
    }
    // The deepest first: no path leads through a closed directory.
    for (directory, mode) in
        place.ancestors().take(DEPTH_MAX + 5).zip([0, 0o500, 0o300].into_iter().cycle())
    {
        set_mode(directory, mode);
    }
    // What a link leads to stays as it is.
    let elsewhere = both.path().join("elsewhere");
    set_mode(&elsewhere, 0o500);
    std::os::unix::fs::symlink(&elsewhere, both.path().join("here/link")).unwrap();
    here.grant_owner_access(name("link")).unwrap_err();
    here.clear().unwrap();
    assert_eq!(names(&here), Vec::<OsString>::new());
    assert_eq!(kept(&both), "theirs");
    let mode = std::fs::metadata(&elsewhere).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o500);
    set_mode(&both.path().join("here"), 0);
    let top = Directory::open(both.path()).unwrap();
    top.remove(name("here")).unwrap();
    assert!(!both.path().join("here").exists());
    set_mode(&elsewhere, 0o700);
}
