//! What the same machine takes for a copy without Egret, on the same data in the same run.
//!
//! The programs are run as an administrator's script would run them: `btrfs subvolume snapshot` and
//! `pg_ctl -w start` as the server's user. Settings are those of the branches they are compared
//! with.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::server::Server;

/// Looked at this often for the socket of a server that starts: far below what a start takes.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// How long a start may take.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A copy without Egret, from start to end.
pub(crate) struct BaselineCopy {
    template: PathBuf,
    scratch: PathBuf,
    programs: PathBuf,
    /// `-c name=value` of a branch, as its postmaster was given them.
    settings: Vec<String>,
    owner: (u32, u32),
}

/// How a start is known to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// `pg_ctl -w`, which looks at the pid file ten times a second.
    Polled,
    /// The socket accepts a connection, looked at every 0.2 ms.
    Watched,
}

impl BaselineCopy {
    /// Looks at a running branch for how it was started; `None` where Egret's files are not here or
    /// the volume is no btrfs.
    ///
    /// # Errors
    /// When what is expected there is not.
    pub(crate) async fn from_branch(server: &Server, branch: &Value) -> Result<Option<Self>> {
        let volume = server.get("v1/volume").await?;
        if volume["driver"] != "btrfs" || server.endpoint().data_dir.is_none() {
            return Ok(None);
        }
        let root = PathBuf::from(volume["path"].as_str().context("the volume has no path")?);
        let id = |value: &Value| value.as_str().unwrap_or_default().replace('-', "");
        let data = root.join("branches").join(id(&branch["id"]));
        let pid = fs::read_to_string(data.join("postmaster.pid"))
            .with_context(|| format!("read the pid file in {}", data.display()))?;
        let pid = pid.lines().next().unwrap_or_default().to_owned();
        let command =
            fs::read(format!("/proc/{pid}/cmdline")).context("read a branch's command line")?;
        let words: Vec<String> = command
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let location_settings = ["data_directory=", "hba_file=", "ident_file="];
        let settings = words
            .windows(2)
            .filter(|pair| {
                pair[0] == "-c"
                    && !location_settings.iter().any(|setting| pair[1].starts_with(setting))
            })
            .map(|pair| pair[1].clone())
            .collect();
        let metadata = fs::metadata(&data)?;
        let programs = Path::new(&words[0]).parent().context("the server has no directory")?;
        Ok(Some(Self {
            template: root.join("templates").join(id(&branch["parent"]["template"])),
            scratch: root.join("bench"),
            programs: programs.to_owned(),
            settings,
            owner: (metadata.uid(), metadata.gid()),
        }))
    }

    fn configure_as_owner(&self, command: &mut Command) {
        if rustix::process::geteuid().is_root() {
            command.uid(self.owner.0).gid(self.owner.1);
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    }

    /// A snapshot of the template and a start on it; returns how long until it accepted
    /// connections.
    ///
    /// # Errors
    /// What failed, with what it said.
    pub(crate) fn snapshot_and_start(&self, readiness: Readiness) -> Result<Duration> {
        let sockets = tempfile::Builder::new().prefix("egret-arm-").tempdir()?;
        std::os::unix::fs::chown(sockets.path(), Some(self.owner.0), Some(self.owner.1))?;
        fs::create_dir_all(&self.scratch)?;
        let data = self.scratch.join("arm");
        let begun = Instant::now();
        let result =
            self.snapshot(&data).and_then(|()| self.start(&data, sockets.path(), readiness, begun));
        self.stop(&data)?;
        self.remove(&data)?;
        result
    }

    fn snapshot(&self, data: &Path) -> Result<()> {
        let mut command = Command::new("btrfs");
        command.args(["subvolume", "snapshot"]).arg(&self.template).arg(data);
        run_command(&mut command)
    }

    fn start(
        &self,
        data: &Path,
        sockets: &Path,
        readiness: Readiness,
        begun: Instant,
    ) -> Result<Duration> {
        let mut options = vec!["-k".to_owned(), sockets.display().to_string()];
        for setting in &self.settings {
            options.extend(["-c".to_owned(), setting.clone()]);
        }
        match readiness {
            Readiness::Polled => {
                let mut command = Command::new(self.programs.join("pg_ctl"));
                self.configure_as_owner(&mut command);
                let quoted: Vec<String> = options.iter().map(|word| format!("'{word}'")).collect();
                command.arg("-D").arg(data).args(["-w", "-s", "-l"]);
                command.arg(sockets.join("log")).arg("-o").arg(quoted.join(" ")).arg("start");
                run_command(&mut command)?;
            }
            Readiness::Watched => {
                let mut command = Command::new(self.programs.join("postgres"));
                self.configure_as_owner(&mut command);
                let log = fs::File::create(sockets.join("log"))?;
                command.arg("-D").arg(data).args(&options).stderr(log);
                let mut child = command.spawn().context("start postgres")?;
                let is_ready = || is_pid_file_ready(data);
                while !is_ready() {
                    ensure!(begun.elapsed() < START_TIMEOUT, "the server was not ready in time");
                    if let Some(status) = child.try_wait()? {
                        bail!("the server exited ({status})");
                    }
                    std::thread::sleep(POLL_INTERVAL);
                }
                let duration = begun.elapsed();
                // Reaped here, as it is a child of this process.
                self.stop(data)?;
                child.wait()?;
                return Ok(duration);
            }
        }
        Ok(begun.elapsed())
    }

    fn stop(&self, data: &Path) -> Result<()> {
        if !data.join("postmaster.pid").exists() {
            return Ok(());
        }
        let mut command = Command::new(self.programs.join("pg_ctl"));
        self.configure_as_owner(&mut command);
        command.arg("-D").arg(data).args(["-m", "immediate", "-w", "-s", "stop"]);
        run_command(&mut command)
    }

    fn remove(&self, data: &Path) -> Result<()> {
        if data.exists() {
            run_command(Command::new("btrfs").args(["subvolume", "delete"]).arg(data))?;
        }
        fs::remove_dir(&self.scratch).context("remove the scratch directory")
    }

    /// `pg_basebackup` of the source through its socket; returns how long it took.
    ///
    /// # Errors
    /// What failed, with what it said.
    pub(crate) fn base_backup(&self, port: u64, password: &str) -> Result<Duration> {
        fs::create_dir_all(&self.scratch)?;
        let data = self.scratch.join("backup");
        let begun = Instant::now();
        let mut command = Command::new(self.programs.join("pg_basebackup"));
        command
            .args(["-h", "127.0.0.1", "-U", "egret", "-c", "fast", "-p", &port.to_string(), "-D"])
            .arg(&data)
            .env("PGPASSWORD", password)
            .env("PGSSLMODE", "disable")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let result = run_command(&mut command).map(|()| begun.elapsed());
        fs::remove_dir_all(&self.scratch)?;
        result
    }

    /// Whether the programs for a base backup of the same major version are there.
    pub(crate) fn has_base_backup(&self) -> bool {
        self.programs.join("pg_basebackup").exists()
    }
}

/// The eighth line of the pid file is the postmaster's status.
fn is_pid_file_ready(data: &Path) -> bool {
    fs::read_to_string(data.join("postmaster.pid"))
        .is_ok_and(|text| text.lines().nth(7).is_some_and(|line| line.trim() == "ready"))
}

fn run_command(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("run {name}"))?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
