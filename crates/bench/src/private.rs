//! An Egret of the measurement's own: started in a temporary directory on free ports, ended with
//! it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::server::{Server, ServerEndpoint};

/// A first start makes a cluster, and may fetch PostgreSQL before that.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// An orderly stop ends branches and the embedded server; after this time it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Variables that say how this machine is, not how the caller's Egret is.
const INHERITED_VARIABLES: [&str; 3] =
    ["EGRET_POSTGRES_BIN", "EGRET_POSTGRES_CACHE_DIR", "EGRET_POSTGRES_RUN_AS"];

const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// A running private Egret. Dropping it ends it, waits for its end and removes its files.
pub struct PrivateServer {
    child: Child,
    /// The command that starts it.
    command: Command,
    server: Server,
    postgres_port: u16,
    proxy_port: u16,
    directory: TempDir,
}

impl PrivateServer {
    /// Starts `program` as `egret serve` with these settings (`section.key`, value) and waits until
    /// it is ready.
    ///
    /// # Errors
    /// When it does not start: with the end of its log.
    pub async fn start(program: &Path, settings: &[(String, String)]) -> Result<Self> {
        let mut private = Self::spawn(program, settings)?;
        private.wait_until_ready().await?;
        private.authenticate()?;
        Ok(private)
    }

    /// Starts the process and returns at once; its client has no token yet.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub fn spawn(program: &Path, settings: &[(String, String)]) -> Result<Self> {
        let directory = private_directory(None)?;
        // PostgreSQL runs as another user where Egret is root, and has to pass through.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711))?;
        let data_dir = directory.path().join("data");
        let ports = free_ports()?;
        let [server_port, proxy_port, postgres_port] = ports;
        let mut command = serve_command(program, settings, directory.path(), ports)?;
        let child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let endpoint = ServerEndpoint {
            url: format!("http://127.0.0.1:{server_port}"),
            token: None,
            tls: None,
            data_dir: Some(data_dir),
        };
        Ok(Self {
            child,
            command,
            server: Server::new(endpoint)?,
            postgres_port,
            proxy_port,
            directory,
        })
    }

    /// Gives its client the administrator's token.
    ///
    /// # Errors
    /// When there is none yet.
    pub fn authenticate(&mut self) -> Result<()> {
        if self.server.endpoint().token.is_none() {
            self.server = Server::new(ServerEndpoint {
                token: Some(self.read_secret("admin.token")?),
                ..self.server.endpoint().clone()
            })?;
        }
        Ok(())
    }

    /// Ends it at once, as a crash would, and starts it again on the same files. Returns when that
    /// was begun; it need not be ready yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn kill_and_restart(&mut self) -> Result<Instant> {
        self.child.kill().context("kill the private egret")?;
        self.child.wait().context("wait for the private egret")?;
        let begun = Instant::now();
        self.child = self.command.spawn().context("start egret again")?;
        Ok(begun)
    }

    /// A client for it, as administrator.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Process id of the private Egret.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The port of the PostgreSQL door.
    pub fn proxy_port(&self) -> u16 {
        self.proxy_port
    }

    /// The superuser's connection string of its embedded server.
    ///
    /// # Errors
    /// When the password cannot be read.
    pub fn postgres_url(&self) -> Result<String> {
        Ok(format!(
            "postgres://egret:{}@127.0.0.1:{}/postgres?sslmode=disable",
            self.read_secret("superuser.password")?,
            self.postgres_port
        ))
    }

    fn read_secret(&self, name: &str) -> Result<String> {
        let path = self.directory.path().join("data").join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(text.trim().to_owned())
    }

    /// Waits until it can do everything.
    ///
    /// # Errors
    /// When it ends, or takes too long: with the end of its log.
    pub(crate) async fn wait_until_ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("wait for the server")? {
                bail!("the private egret exited ({status}): {}", self.log_tail());
            }
            if self.server.check_ready().await.is_ok() {
                return Ok(());
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!(
                    "the private egret was not ready after {} s: {}",
                    START_TIMEOUT.as_secs(),
                    self.log_tail()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Ends an embedded server that outlived a crash of Egret: no other Egret will adopt it.
    fn stop_embedded_server(&self) {
        let path = self.directory.path().join("data/volume/source/postmaster.pid");
        let text = fs::read_to_string(path).unwrap_or_default();
        let pid = text.lines().next().and_then(|line| line.parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // Fails only when it has ended.
            let _ = kill_process(pid, Signal::QUIT);
        }
    }

    /// Whether the process ends within `timeout`.
    fn has_exited_within(&mut self, timeout: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < timeout {
            // An error means that it is no child any more.
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        false
    }
}

/// A directory that is removed with what it holds, below this one or where temporary files go.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn private_directory(parent: Option<&Path>) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("egret-bench-");
    match parent {
        Some(parent) => builder.tempdir_in(parent),
        None => builder.tempdir(),
    }
    .context("make a temporary directory")
}

/// `egret serve` in a directory.
fn serve_command(
    program: &Path,
    settings: &[(String, String)],
    directory: &Path,
    ports: [u16; 3],
) -> Result<Command> {
    let [server_port, proxy_port, postgres_port] = ports;
    let log = File::create(directory.join("log")).context("make the server's log")?;
    let mut command = Command::new(program);
    command
        .arg("serve")
        .arg("--json")
        .args(["--set", "server.access_log=false"])
        .arg("--set")
        .arg(format!("egret.data_dir={}", directory.join("data").display()))
        .args(["--set", &format!("server.port={server_port}")])
        .args(["--set", &format!("proxy.port={proxy_port}")])
        .args(["--set", &format!("postgres.port={postgres_port}")]);
    for (key, value) in settings {
        command.args(["--set", &format!("{key}={value}")]);
    }
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // The caller's Egret may stand on another server, ask for TLS, or have a token.
        if text.starts_with("EGRET_") && !INHERITED_VARIABLES.contains(&text.as_ref()) {
            command.env_remove(&name);
        }
    }
    command
        .current_dir(directory)
        // The profiler leaves a file there.
        .env("TMPDIR", directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("share the server's log")?)
        .stderr(log)
        // Ctrl-C reaches this process, which ends the server in its own time.
        .process_group(0);
    Ok(command)
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        if !matches!(self.child.try_wait(), Ok(None)) {
            return self.stop_embedded_server();
        }
        // Fails only when it has just ended.
        let _ = kill_process(pid, Signal::TERM);
        if !self.has_exited_within(STOP_TIMEOUT) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Three ports that are free at this moment, all different because held at the same time.
fn free_ports() -> Result<[u16; 3]> {
    let listeners = [bind_free_port()?, bind_free_port()?, bind_free_port()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr().context("probe a port")?.port();
    }
    Ok(ports)
}

fn bind_free_port() -> Result<TcpListener> {
    TcpListener::bind("127.0.0.1:0").context("find a free port")
}
