//! Pipes, directories and devices are refused without waiting.

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

#[test]
fn a_pipe_is_refused_without_waiting_for_its_writer() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "text").unwrap();
    assert_eq!(read_to_string(&file).unwrap(), "text");
    let pipe = place.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    for path in [pipe.as_path(), place.path(), Path::new("/dev/null")] {
        let error = read(path).unwrap_err();
        assert_eq!(error.to_string(), "it is not a regular file", "{path:?}");
    }
}
