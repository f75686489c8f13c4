//! Which parts of which files are read ahead.

use super::*;

#[test]
fn small_files_are_read_whole_and_large_ones_at_both_ends() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("base/16384");
    fs::create_dir_all(&base).unwrap();
    let make = |name: &str, bytes: u64| {
        File::create(base.join(name)).unwrap().set_len(bytes).unwrap();
    };
    make("1", 8192);
    make("1_fsm", 24_576);
    make("2", 1 << 20);
    make("3", 0);
    let relations = ["base/16384/1", "base/16384/2", "base/16384/3", "base/16384/4"];
    let found = find_ranges(directory.path(), &relations.map(str::to_owned));
    let range =
        |file: &str, offset, bytes| Range { file: format!("base/16384/{file}"), offset, bytes };
    let expected = vec![
        range("1", 0, 8192),
        range("1_fsm", 0, 24_576),
        range("2", 0, HEAD_BYTES),
        range("2", (1 << 20) - TAIL_BYTES, TAIL_BYTES),
    ];
    assert_eq!(found, expected);
    read_ahead(directory.path(), &found);
}

#[test]
fn nothing_but_relations_is_read() {
    let strange = [
        "base/16384/../../../etc/passwd",
        "/etc/passwd",
        "base/16384",
        "base/16384/12/3",
        "base//12",
        "pg_tblspc/1/2",
    ];
    for path in strange {
        assert!(!is_relation(path), "{path}");
    }
    assert!(is_relation("base/16384/12"));
}
