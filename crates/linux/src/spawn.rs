//! Starting a confined program, inside a control group from its first moment.
//!
//! Moving a process to another control group waits for a grace period of the kernel, some ten
//! milliseconds. clone3(2) makes it inside of the group instead (`CLONE_INTO_CGROUP`, Linux 5.7).
//! Where that cannot be had, the child moves itself, as [`Confinement::apply`] has it.

use std::ffi::{CString, OsString, c_char};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::Command;
use std::ptr;

use rustix::process::{Pid, WaitOptions};

use crate::confine::Confinement;

/// A program, and what it is started with. It works in `/`.
#[derive(Debug)]
pub struct Program {
    /// Where it is: a whole path.
    pub path: PathBuf,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// Its whole environment: names and values.
    pub environment: Vec<(OsString, OsString)>,
}

/// The first three descriptors of a process.
#[derive(Debug)]
pub struct StandardStreams {
    /// Standard input of the program.
    pub input: OwnedFd,
    /// Standard output of the program.
    pub output: OwnedFd,
    /// Standard error of the program.
    pub errors: OwnedFd,
}

impl Program {
    /// The same program for the standard library.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.args(&self.arguments).env_clear().envs(environment).current_dir("/");
        command
    }

    /// Starts it confined. Returns the process, a child of this one that the caller waits for.
    ///
    /// # Errors
    /// Those of the confinement, and the kernel's where there can be no process or no such program.
    pub fn spawn(&self, streams: StandardStreams, confinement: Confinement) -> io::Result<Pid> {
        if let Some(group) = confinement.group() {
            match self.spawn_in(group.directory(), &streams, &confinement) {
                Err(error) if is_unsupported(&error) => {}
                result => return result?.wait_for_exec(),
            }
        }
        self.spawn_and_move(streams, confinement)
    }

    /// Starts it by the standard library; it moves to its group itself.
    fn spawn_and_move(
        &self,
        streams: StandardStreams,
        confinement: Confinement,
    ) -> io::Result<Pid> {
        let mut command = self.command();
        command.stdin(streams.input).stdout(streams.output).stderr(streams.errors);
        let child = confinement.apply(&mut command).spawn()?;
        Ok(Pid::from_child(&child))
    }

    /// Makes the child in the group of this directory. It becomes the program by itself.
    fn spawn_in(
        &self,
        group: BorrowedFd<'_>,
        streams: &StandardStreams,
        confinement: &Confinement,
    ) -> io::Result<PendingChild> {
        let to_cstring =
            |text: OsString| -> io::Result<CString> { Ok(CString::new(text.into_vec())?) };
        let path = to_cstring(self.path.clone().into())?;
        let mut arguments = vec![path.clone()];
        for argument in &self.arguments {
            arguments.push(to_cstring(argument.clone())?);
        }
        let mut environment = Vec::new();
        for (name, value) in &self.environment {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            environment.push(to_cstring(pair)?);
        }
        let (errors, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let image = Image {
            path: &path,
            arguments: &pointers(&arguments),
            environment: &pointers(&environment),
            streams,
            report: &report,
        };
        match clone_into(group)? {
            Some(pid) => Ok(PendingChild { pid, errors }),
            None => end_of_child(&image, confinement),
        }
    }
}

/// What the child executes. All of it is allocated before the child is made.
struct Image<'a> {
    path: &'a CString,
    /// Each ends with a null pointer, as execve(2) wants it.
    arguments: &'a [*const c_char],
    environment: &'a [*const c_char],
    streams: &'a StandardStreams,
    /// Takes the number of the error that keeps the child from running the program.
    report: &'a OwnedFd,
}

/// A child that has not run its program yet.
struct PendingChild {
    pid: Pid,
    /// Receives the child's error; closed when the program runs.
    errors: OwnedFd,
}

impl PendingChild {
    /// Waits until the program runs, or fails with the child's error.
    fn wait_for_exec(self) -> io::Result<Pid> {
        let mut report = Vec::new();
        let read = File::from(self.errors).read_to_end(&mut report);
        let error = match (read, <[u8; 4]>::try_from(report)) {
            (Ok(0), _) => return Ok(self.pid),
            (Ok(_), Ok(number)) => io::Error::from_raw_os_error(i32::from_ne_bytes(number)),
            (Ok(_), Err(_)) => io::Error::other("the child ended in the middle of a report"),
            (Err(error), _) => error,
        };
        // Only a child that is about to end has written anything.
        let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
        rustix::process::waitpid(Some(self.pid), WaitOptions::empty())?;
        Err(error)
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    let pointers = texts.iter().map(|text| text.as_ptr());
    pointers.chain([ptr::null()]).collect()
}

/// Whether the kernel has no clone3(2), does not know the flags, or a filter of system calls keeps
/// it from being used.
fn is_unsupported(error: &io::Error) -> bool {
    let numbers = [libc::ENOSYS, libc::EINVAL, libc::E2BIG, libc::EPERM, libc::EACCES];
    error.raw_os_error().is_some_and(|number| numbers.contains(&number))
}

/// `struct clone_args` of `linux/sched.h` in its third version (`CLONE_ARGS_SIZE_VER2`).
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const _: () = assert!(size_of::<CloneArguments>() == 88);

/// `CLONE_CLEAR_SIGHAND` of `linux/sched.h`: no handler of this process runs in the child.
const CLEAR_SIGNAL_HANDLERS: u64 = 0x1_0000_0000;
/// `CLONE_INTO_CGROUP` of `linux/sched.h`: the child begins in another control group.
const INTO_CONTROL_GROUP: u64 = 0x2_0000_0000;

/// Makes a child as fork(2) does, in the group of this directory. Returns twice: in the child
/// `None`.
fn clone_into(group: BorrowedFd<'_>) -> io::Result<Option<Pid>> {
    let arguments = CloneArguments {
        flags: CLEAR_SIGNAL_HANDLERS | INTO_CONTROL_GROUP,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        cgroup: u64::from(group.as_raw_fd().unsigned_abs()),
        ..CloneArguments::default()
    };
    #[expect(unsafe_code, reason = "no crate wraps clone3")]
    // SAFETY: the kernel reads the 88 bytes of the struct, whose layout is asserted above. Without
    // CLONE_VM the child has a copy of this process's memory and, without a stack of its own, of
    // this stack: it goes on here as the one thread of the copy. The C library knows nothing of it,
    // so that locks of other threads may be held in the copy for good; the one caller has the child
    // go to `end_of_child` at once, which takes none and does not return.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone3, ptr::from_ref(&arguments), size_of::<CloneArguments>())
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Pid::from_raw(i32::try_from(pid).unwrap_or(0)))
}

/// In the child: becomes the program, or reports why not and ends. Neither allocates nor takes a
/// lock.
fn end_of_child(image: &Image<'_>, confinement: &Confinement) -> ! {
    let error = match prepare(image, confinement) {
        Ok(()) => execute(image),
        Err(error) => error,
    };
    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
    // Where nothing is reported the parent takes the child for the program, which then ends.
    let _ = rustix::io::write(image.report, &number.to_ne_bytes());
    #[expect(unsafe_code, reason = "the child must not run what is registered for the end")]
    // SAFETY: _exit(2) ends the process and runs no handler.
    unsafe {
        libc::_exit(127)
    }
}

/// What the standard library does before a program runs, in the same order, and the confinement.
fn prepare(image: &Image<'_>, confinement: &Confinement) -> io::Result<()> {
    let StandardStreams { input, output, errors } = image.streams;
    for (stream, number) in [(input, 0), (output, 1), (errors, 2)] {
        #[expect(unsafe_code, reason = "a number is given to a descriptor")]
        // SAFETY: dup2(2) takes numbers. Those that it replaces are this child's standard streams,
        // which nothing uses before the program; none of `image` is one of them, since the standard
        // library sees to it that they are open from the start.
        let result = unsafe { libc::dup2(stream.as_raw_fd(), number) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    rustix::process::chdir(c"/")?;
    #[expect(unsafe_code, reason = "signals of the child alone")]
    // SAFETY: the three calls are safe where only calls for signal handlers are (signal-safety(7));
    // the set is a local that sigemptyset(3) fills before it is read.
    unsafe {
        let mut empty_set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut empty_set);
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const empty_set, ptr::null_mut()) < 0
            || libc::signal(libc::SIGPIPE, libc::SIG_DFL) == libc::SIG_ERR
        {
            return Err(io::Error::last_os_error());
        }
    }
    confinement.enter_from_within_group()
}

/// Replaces the child by the program. Returns only when that fails.
fn execute(image: &Image<'_>) -> io::Error {
    #[expect(unsafe_code, reason = "no safe crate wraps execve")]
    // SAFETY: the path is a C string, and both lists are of pointers to C strings that live in the
    // frame of `spawn_in`, with a null pointer at the end.
    unsafe {
        libc::execve(image.path.as_ptr(), image.arguments.as_ptr(), image.environment.as_ptr());
    }
    io::Error::last_os_error()
}

#[cfg(test)]
mod tests;
