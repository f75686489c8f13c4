//! Write-back of a file's changed pages, started before the kernel would.
//!
//! The call: sync_file_range(2). It makes nothing durable and changes no metadata.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Starts writing all changed pages of a regular file that are not being written yet, and does not
/// wait for the disk, unless its queue is full.
///
/// # Errors
/// The kernel's; errors of an earlier write are left to the next caller of fsync(2).
pub fn start(file: impl AsFd) -> io::Result<()> {
    #[expect(unsafe_code, reason = "no safe crate offers sync_file_range")]
    // SAFETY: the call takes numbers alone, reads and writes no memory of this process, and the
    // descriptor stays open through it, as `file` is borrowed. A length of 0 reaches to the end.
    let result = unsafe {
        libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
