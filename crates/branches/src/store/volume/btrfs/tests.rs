//! What writers are promised is looked for once for each file system, and read at each look.

use super::*;

#[test]
fn promised_bytes_are_looked_for_once_and_read_each_time() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("bytes_may_use");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write("4096\n");
    let promised = PromisedBytes::default();
    // Below no mount point.
    let nowhere = Path::new("nowhere");
    let keep = || {
        *promised.cached.lock().unwrap() = Some(Promise {
            file_system: 1,
            file: Some(File::open(&path).unwrap()),
            looked_up_at: Instant::now(),
        });
    };
    let has_file = || {
        let known = promised.cached.lock().unwrap();
        known.as_ref().unwrap().file.is_some()
    };
    keep();
    assert_eq!(promised.read_bytes(1, nowhere), 4096);
    write("8192\n");
    assert_eq!(promised.read_bytes(1, nowhere), 8192);
    assert!(has_file());
    // Another file system, of which nothing is shown.
    assert_eq!(promised.read_bytes(2, nowhere), 0);
    assert!(!has_file());
    keep();
    write("");
    assert_eq!(promised.read_bytes(1, nowhere), 0);
    assert!(!has_file(), "it was looked for again");
}
