//! The command's process: its input, its output, its end.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// Results longer than this are refused here; the server has its own limit
/// (`queue.payload_bytes_max`).
const STDOUT_BYTES_MAX: usize = 4 << 20;

/// Bytes from the end of standard error that a failed attempt reports.
const STDERR_BYTES_KEPT: usize = 4_000;

/// How long a command has between SIGTERM and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_secs(5);

/// Exit status and output of a command that has ended.
pub(super) struct ProcessOutput {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    /// Whether there was more of it than [`STDOUT_BYTES_MAX`].
    pub(super) is_truncated: bool,
    /// The end of standard error.
    pub(super) stderr: Vec<u8>,
}

impl ProcessOutput {
    /// Why the attempt failed; `None` where it did not.
    pub(super) fn failure(&self) -> Option<String> {
        if self.status.success() {
            return self.is_truncated.then(|| {
                format!("the result is longer than {STDOUT_BYTES_MAX} bytes of standard output")
            });
        }
        let stderr = String::from_utf8_lossy(&self.stderr);
        Some(match stderr.trim() {
            "" => self.status.to_string(),
            said => said.to_owned(),
        })
    }
}

/// A running command, in a process group of its own: the terminal's Ctrl-C is not for it.
pub(super) struct ChildProcess {
    child: Child,
    group: Option<Pid>,
}

impl ChildProcess {
    pub(super) fn start(
        command: &[OsString],
        environment: Vec<(&'static str, String)>,
    ) -> io::Result<Self> {
        let (program, arguments) =
            command.split_first().expect("the command line asks for a command");
        let child = Command::new(program)
            .args(arguments)
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Ok(Self { group: id.and_then(Pid::from_raw), child })
    }

    pub(super) fn group(&self) -> Option<Pid> {
        self.group
    }

    /// Gives it the payload and listens until it has ended.
    pub(super) async fn run(mut self, payload: Vec<u8>) -> io::Result<ProcessOutput> {
        let mut stdin = self.child.stdin.take();
        let write_stdin = async {
            if let Some(stdin) = &mut stdin {
                // A command need not read what it is given.
                let _ = stdin.write_all(&payload).await;
            }
            drop(stdin.take());
        };
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let (mut stdout_bytes, mut is_cut, mut stderr_tail) = (Vec::new(), false, Vec::new());
        let read_stdout = drain(stdout, |bytes| {
            let room = STDOUT_BYTES_MAX - stdout_bytes.len();
            is_cut |= bytes.len() > room;
            stdout_bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        });
        let read_stderr = drain(stderr, |bytes| {
            // For the terminal of the worker; if it cannot be written there, nothing can be done.
            let _ = io::stderr().write_all(bytes);
            stderr_tail.extend_from_slice(bytes);
            let surplus = stderr_tail.len().saturating_sub(STDERR_BYTES_KEPT);
            stderr_tail.drain(..surplus);
        });
        let ((), (), (), status) =
            tokio::join!(write_stdin, read_stdout, read_stderr, self.child.wait());
        Ok(ProcessOutput {
            status: status?,
            stdout: stdout_bytes,
            is_truncated: is_cut,
            stderr: stderr_tail,
        })
    }
}

async fn drain(from: Option<impl AsyncRead + Unpin>, mut on_bytes: impl FnMut(&[u8])) {
    let Some(mut from) = from else {
        return;
    };
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        on_bytes(&buffer[..read]);
    }
}

/// Ends a command and everything that it has started: politely first.
pub(super) async fn terminate<T>(group: Option<Pid>, running: impl Future<Output = T>) -> T {
    let mut running = std::pin::pin!(running);
    signal(group, Signal::TERM);
    match tokio::time::timeout(TERMINATION_GRACE, &mut running).await {
        Ok(ended) => ended,
        Err(_) => {
            signal(group, Signal::KILL);
            running.await
        }
    }
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // It may have ended just now.
        let _ = kill_process_group(group, signal);
    }
}
