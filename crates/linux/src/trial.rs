//! Trying out, in a child that ends at once, what a process does to itself before it runs a
//! program.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Takes a step in a forked child. Returns how it went.
///
/// # Errors
/// Those of the step, and the kernel's where there can be no child.
///
/// # Safety
/// `step` runs between fork and exec: it makes system calls alone, takes no lock and allocates
/// nothing.
#[expect(unsafe_code, reason = "pre_exec is the only way to act in the child")]
pub(crate) unsafe fn try_in_child(
    step: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    const STEP_SUCCEEDED: i32 = libc::ECANCELED;
    let mut command = Command::new("/");
    // SAFETY: the caller's promise; the error is made of a number.
    unsafe {
        command.pre_exec(move || {
            step()?;
            Err(io::Error::from_raw_os_error(STEP_SUCCEEDED))
        });
    }
    match command.spawn() {
        Err(error) if error.raw_os_error() == Some(STEP_SUCCEEDED) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => unreachable!("the child ends before it runs a program"),
    }
}
