//! On real files: what is started keeps what is in them, and what cannot be is an error.

use std::io::Write as _;

use super::*;

#[test]
fn a_file_keeps_its_bytes() {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&[7; 100_000]).expect("written");
    start(&file).expect("started");
    start(&file).expect("started again");
    assert_eq!(file.metadata().expect("its size").len(), 100_000);
}

#[test]
fn a_pipe_is_refused() {
    let (reader, _writer) = io::pipe().expect("a pipe");
    let error = start(&reader).expect_err("a pipe has no pages");
    assert_eq!(error.raw_os_error(), Some(libc::ESPIPE));
}
