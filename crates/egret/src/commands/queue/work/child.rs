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
const GRACE: Duration = Duration::from_secs(5);

/// Exit status and output of a command that has ended.
pub(super) struct ProcessOutput {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    /// Whether there was more of it than [`STDOUT_BYTES_MAX`].
    pub(super) is_cut: bool,
    /// The end of standard error.
    pub(super) stderr: Vec<u8>,
}

impl ProcessOutput {
    /// Why the attempt failed; `None` where it did not.
    pub(super) fn failure(&self) -> Option<String> {
        if self.status.success() {
            return self.is_cut.then(|| {
                format!("the result is longer than {STDOUT_BYTES_MAX} bytes of standard output")
            });
        }
        let said = String::from_utf8_lossy(&self.stderr);
        Some(match said.trim() {
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
        let (program, arguments) = command
            .split_first()
            .expect("the command line asks for a command");
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
        Ok(Self {
            group: id.and_then(Pid::from_raw),
            child,
        })
    }

    pub(super) fn group(&self) -> Option<Pid> {
        self.group
    }

    /// Gives it the payload and listens until it has ended.
    pub(super) async fn run(mut self, payload: Vec<u8>) -> io::Result<ProcessOutput> {
        let mut stdin = self.child.stdin.take();
        let feed = async {
            if let Some(stdin) = &mut stdin {
                // A command need not read what it is given.
                let _ = stdin.write_all(&payload).await;
            }
            drop(stdin.take());
        };
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let (mut result, mut is_cut, mut reason) = (Vec::new(), false, Vec::new());
        let hear_result = drain(stdout, |bytes| {
            let room = STDOUT_BYTES_MAX - result.len();
            is_cut |= bytes.len() > room;
            result.extend_from_slice(&bytes[..bytes.len().min(room)]);
        });
        let hear_reason = drain(stderr, |bytes| {
            // For the terminal of the worker; if it cannot be written there, nothing can be done.
            let _ = io::stderr().write_all(bytes);
            reason.extend_from_slice(bytes);
            let surplus = reason.len().saturating_sub(STDERR_BYTES_KEPT);
            reason.drain(..surplus);
        });
        let ((), (), (), status) = tokio::join!(feed, hear_result, hear_reason, self.child.wait());
        Ok(ProcessOutput {
            status: status?,
            stdout: result,
            is_cut,
            stderr: reason,
        })
    }
}

async fn drain(from: Option<impl AsyncRead + Unpin>, mut hear: impl FnMut(&[u8])) {
    let Some(mut from) = from else {
        return;
    };
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        hear(&buffer[..read]);
    }
}

/// Ends a command and everything that it has started: politely first.
pub(super) async fn end<T>(group: Option<Pid>, running: impl Future<Output = T>) -> T {
    let mut running = std::pin::pin!(running);
    signal(group, Signal::TERM);
    match tokio::time::timeout(GRACE, &mut running).await {
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
