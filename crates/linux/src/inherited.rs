//! An open file that the program executed before left to this one.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::FileType;

/// Takes over an anonymous file in memory (memfd_create(2)) by its number. From then on it is
/// closed when this process executes another program.
///
/// # Errors
/// When there is no such file, or it is one with a name.
pub fn take_memory_file(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::other("not a number of an inherited file"));
    }
    #[expect(unsafe_code, reason = "a number is all that the program before can pass on")]
    // SAFETY: the descriptor is only asked what it is; where it is not open the kernel says so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let stat = rustix::fs::fstat(borrowed)?;
    let is_unnamed = stat.st_nlink == 0 && FileType::from_raw_mode(stat.st_mode).is_file();
    if !is_unnamed {
        return Err(io::Error::other("not an anonymous file"));
    }
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    #[expect(unsafe_code, reason = "a number is all that the program before can pass on")]
    // SAFETY: it is open and was opened before this program began, so no value of this process owns
    // it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
