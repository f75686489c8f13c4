//! Other people's servers that a scenario starts beside Egret: each in a directory of its own, on a
//! free port.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::refusal;

/// How long one may take to answer on its port.
const START_TIMEOUT: Duration = Duration::from_secs(10);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A server that runs. Dropped, it is ended and its files are removed.
pub(crate) struct ServerProcess {
    name: &'static str,
    command: Command,
    child: Child,
    pub(crate) port: u16,
    pub(crate) directory: TempDir,
}

impl ServerProcess {
    /// Starts a program with the arguments that `configure` gives it for a directory and a port,
    /// and waits until it takes connections.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn start(
        name: &'static str,
        program: &str,
        configure: impl FnOnce(&mut Command, &Path, u16) -> Result<()>,
    ) -> Result<Self> {
        let directory = crate::private_directory(None)?;
        // Free at this moment.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(program);
        configure(&mut command, directory.path(), port)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        let mut process = Self { name, command, child, port, directory };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = process.child.try_wait()? {
                bail!("{name} exited right after its start ({status})");
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!("{name} does not answer on its port");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(process)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once, as a crash would, and starts it again on the same files. Returns when that
    /// was begun; it need not be ready yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn kill_and_restart(&mut self) -> Result<Instant> {
        let name = self.name;
        self.child.kill().with_context(|| format!("kill {name}"))?;
        self.child.wait().with_context(|| format!("wait for {name}"))?;
        let begun = Instant::now();
        self.child = self.command.spawn().with_context(|| format!("start {name} again"))?;
        Ok(begun)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Fails only when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program says about its version; refused where it is not on the path.
///
/// # Errors
/// What is missing and how to get it.
pub(crate) fn program_version(
    name: &str,
    program: &str,
    package: &str,
    flag: &str,
) -> Result<String> {
    // Where it is there, it says its version and ends.
    let found = Command::new(program).arg(flag).stdin(Stdio::null()).stderr(Stdio::null()).output();
    match found {
        Ok(output) => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Err(_) => Err(refusal::usage(format!(
            "--peer {name}: {program} is not on the PATH: apt-get install {package}"
        ))),
    }
}
