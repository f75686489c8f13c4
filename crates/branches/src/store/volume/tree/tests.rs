//! While root copies, the server's user swaps directories for links. `skip` is called between the
//! steps of a copy, and serves here as that user's moment.

use std::cell::Cell;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

use super::*;

/// A source with `base/one` and `base/two`, a directory of another user with files of the same
/// names, and the path of the copy.
struct Scene {
    _directory: tempfile::TempDir,
    source: PathBuf,
    elsewhere: PathBuf,
    copy: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (source, elsewhere, copy) = (path("source"), path("elsewhere"), path("copy"));
        for (below, text) in [(source.join("base"), "data"), (elsewhere.clone(), "secret")] {
            fs::create_dir_all(&below).unwrap();
            fs::write(below.join("one"), text).unwrap();
            fs::write(below.join("two"), text).unwrap();
        }
        Self { _directory: directory, source, elsewhere, copy }
    }

    /// Copies; before the first file of `base` is opened, `swap` is done.
    fn copy_while(&self, swap: impl Fn()) -> io::Result<()> {
        let swapped = Cell::new(false);
        let result = Tree::copy().clone_except(&self.source, &self.copy, &|path| {
            if path.parent() == Some(&self.source.join("base")) && !swapped.replace(true) {
                swap();
            }
            false
        });
        assert!(swapped.get(), "the copy came by");
        result
    }
}

/// Moves a directory aside and puts a link in its place.
fn replace_with_link(directory: &Path, target: &Path) {
    fs::rename(directory, directory.with_extension("aside")).unwrap();
    symlink(target, directory).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn nothing_is_written_through_a_link_that_replaces_a_directory_of_the_copy() {
    let scene = Scene::new();
    let victim = scene.elsewhere.join("victim");
    fs::create_dir(&victim).unwrap();
    scene.copy_while(|| replace_with_link(&scene.copy.join("base"), &victim)).unwrap();
    assert_eq!(names(&victim), Vec::<String>::new());
    assert_eq!(names(&scene.copy.join("base.aside")), ["one", "two"]);
}

#[test]
fn nothing_is_read_through_a_link_that_replaces_a_directory_of_the_source() {
    let scene = Scene::new();
    scene.copy_while(|| replace_with_link(&scene.source.join("base"), &scene.elsewhere)).unwrap();
    for name in ["one", "two"] {
        let copied = fs::read_to_string(scene.copy.join("base").join(name)).unwrap();
        assert_eq!(copied, "data");
    }
}

#[test]
fn the_copy_is_closed_to_others_until_it_is_complete() {
    let scene = Scene::new();
    fs::set_permissions(&scene.source, fs::Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(scene.source.join("base/one"), fs::Permissions::from_mode(0o640)).unwrap();
    if rustix::process::geteuid().is_root() {
        for path in ["", "base", "base/one", "base/two"] {
            let path = scene.source.join(path);
            std::os::unix::fs::chown(path, Some(12_345), Some(12_346)).unwrap();
        }
    }
    let original = fs::metadata(&scene.source).unwrap();
    scene
        .copy_while(|| {
            let top = fs::metadata(&scene.copy).unwrap();
            assert_eq!(top.mode() & 0o7777, 0o700);
            assert_eq!(top.uid(), rustix::process::geteuid().as_raw());
        })
        .unwrap();
    let top = fs::metadata(&scene.copy).unwrap();
    assert_eq!(top.mode(), original.mode());
    assert_eq!((top.uid(), top.gid()), (original.uid(), original.gid()));
    let file = fs::metadata(scene.copy.join("base/one")).unwrap();
    assert_eq!(file.mode() & 0o7777, 0o640);
    assert_eq!((file.uid(), file.gid()), (original.uid(), original.gid()));
}
