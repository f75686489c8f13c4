//! A table of paths holds until one of them leads to something else.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn a_table_holds_until_a_path_leads_to_something_else() {
    let place = tempfile::tempdir().expect("a directory");
    let [file, link, missing, shown] =
        ["file", "link", "missing", "shown"].map(|name| place.path().join(name));
    fs::write(&file, "").expect("a file");
    fs::write(&shown, "").expect("a file");
    symlink(&file, &link).expect("a link");
    let wanted = CommonPaths {
        executable: vec![place.path().to_owned()],
        readable: vec![link.clone(), missing.clone()],
        replacements: vec![Replacement { path: file.clone(), shown_at: shown.clone() }],
        ..CommonPaths::default()
    };
    let look_up = || PathTable::look_up(wanted.clone()).expect("a table");
    let table = look_up();
    assert!(table.is_current(&wanted) && table.is_current(&wanted));
    assert!(!table.is_current(&CommonPaths::default()), "other paths");
    let are_directories: Vec<bool> = table.entries.iter().map(|entry| entry.is_directory).collect();
    assert_eq!(are_directories, [true, false, false], "not the one that is missing");
    assert_eq!(table.entries[1].requested_path, link);
    assert!(table.entries[1].canonical_path.ends_with("file"));
    assert!(table.entries[2].canonical_path.ends_with("shown"));
    assert!(table.entries[2].source.ends_with("file"));
    // As a package does that is brought up to date.
    let new = place.path().join("new");
    fs::write(&new, "").expect("a file");
    fs::rename(&new, &file).expect("a file in the place of another");
    assert!(!table.is_current(&wanted), "another file");
    let table = look_up();
    fs::write(&missing, "").expect("a file");
    assert!(!table.is_current(&wanted), "one that was missing");
    let table = look_up();
    fs::remove_file(&shown).expect("a file");
    assert!(!table.is_current(&wanted), "one that is gone");
}
