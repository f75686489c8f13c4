//! A file that was never cloned shares no extent; sharing is tested with the volumes of
//! `egret-branches`.

use std::io::Write;

use super::*;

#[test]
fn a_file_that_nobody_cloned_is_all_its_own() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[1; 100_000]).unwrap();
    match unshared_bytes(&file) {
        Ok(bytes) => assert!((100_000..200_000).contains(&bytes), "{bytes}"),
        // Some file systems (tmpfs) do not say.
        Err(error) => assert_eq!(error.raw_os_error(), Some(95), "{error}"),
    }
}
