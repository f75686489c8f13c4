//! Starting a child process in a session of its own.
//!
//! A postmaster must outlive a crash of Egret and must not receive the Ctrl-C of Egret's terminal.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the child call `setsid(2)` between fork and exec, so that it leads its own session and
/// process group and has no controlling terminal.
pub fn in_own_session(command: &mut Command) -> &mut Command {
    #[expect(unsafe_code, reason = "pre_exec is the only way to run setsid in the child")]
    // SAFETY: the closure runs in the forked child before exec, where only async-signal-safe calls
    // are allowed. setsid(2) is one (signal-safety(7)); rustix makes the bare system call, and the
    // closure neither allocates nor takes a lock. A child just forked never leads a process group,
    // so that the call cannot fail with EPERM; any error is handed to the parent.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
