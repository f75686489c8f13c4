//! An open directory is stayed in, and links are neither followed nor mistaken for something else.

use super::*;

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// A directory `here` and, beside it, `elsewhere` with a file that must stay as it is.
fn two() -> (tempfile::TempDir, Directory) {
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
    let (both, here) = two();
    let elsewhere = both.path().join("elsewhere");
    let link = |what: &str, target: &Path| {
        std::os::unix::fs::symlink(target, both.path().join("here").join(what)).unwrap();
    };
    link("directory", &elsewhere);
    link("file", &elsewhere.join("kept"));
    link("missing", &elsewhere.join("made"));
    assert_eq!(here.kind(name("directory")).unwrap(), Kind::Link);
    here.enter(name("directory")).unwrap_err();
    here.read(name("file")).unwrap_err();
    here.write_new(name("missing")).unwrap_err();
    here.clear().unwrap();
    assert_eq!(names(&here), Vec::<OsString>::new());
    assert_eq!(kept(&both), "theirs");
    assert!(!elsewhere.join("made").exists());
}

#[test]
fn a_directory_that_is_swapped_for_a_link_stays_the_one_that_was_opened() {
    let (both, here) = two();
    let inside = here.make(name("inside")).unwrap();
    here.rename(name("inside"), name("aside")).unwrap();
    let link = both.path().join("here/inside");
    std::os::unix::fs::symlink(both.path().join("elsewhere"), link).unwrap();
    inside.write_new(name("new")).unwrap();
    inside.clear().unwrap();
    inside.write_new(name("newer")).unwrap();
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
    let (both, here) = two();
    let path = both.path().join("here/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, PRIVATE, 0).unwrap();
    assert_eq!(here.kind(name("pipe")).unwrap(), Kind::Other);
    let error = here.read(name("pipe")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_tree_of_any_depth_is_removed_with_few_levels_open() {
    let (both, here) = two();
    let mut deepest = here.make(name("deep")).unwrap();
    for _ in 0..1_000 {
        deepest.write_new(name("file")).unwrap();
        deepest = deepest.make(name("deep")).unwrap();
    }
    drop(deepest);
    // A name that is taken already where directories are moved to.
    here.write_new(name(".egret-moved-0")).unwrap();
    let full = here.make(name(".egret-moved-1")).unwrap();
    full.write_new(name("file")).unwrap();
    here.clear().unwrap();
    assert_eq!(names(&here), Vec::<OsString>::new());
    assert_eq!(kept(&both), "theirs");
}
