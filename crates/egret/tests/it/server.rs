//! A throwaway PostgreSQL: its own directory, a socket in it, no TCP, gone when dropped.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use egret_postgres::postmaster::Postmaster;
use tokio_postgres::{Client, NoTls};

pub const PASSWORD: &str = "only-for-this-test";

/// PostgreSQL refuses to run as root, so root runs it as the user that owns nothing.
const UNPRIVILEGED: &str = "nobody";

pub struct PostgresServer {
    postmaster: Child,
    directory: tempfile::TempDir,
}

impl PostgresServer {
    /// Starts a server and returns when it takes connections.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        if rustix::process::geteuid().is_root() {
            let user = uzers::get_user_by_name(UNPRIVILEGED).unwrap();
            std::os::unix::fs::chown(
                directory.path(),
                Some(user.uid()),
                Some(user.primary_group_id()),
            )
            .unwrap();
        }
        let data = directory.path().join("data");
        let password_file = directory.path().join("password");
        std::fs::write(&password_file, PASSWORD).unwrap();
        let initdb = program("initdb")
            .arg("--pgdata")
            .arg(&data)
            .arg("--pwfile")
            .arg(&password_file)
            .args([
                "--username=postgres",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
            ])
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert!(initdb.status.success(), "{}", String::from_utf8_lossy(&initdb.stderr));
        let mut postmaster = program("postgres")
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(directory.path())
            .args(["-c", "listen_addresses=", "-c", "logging_collector=off"])
            .current_dir(directory.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(postmaster.stderr.take().unwrap()).lines();
        let ready = log.any(|line| line.unwrap().contains("ready to accept connections"));
        assert!(ready, "the server ended before it was ready");
        // Drained until the server ends: a full pipe would stop it.
        std::thread::spawn(move || log.for_each(drop));
        Self { postmaster, directory }
    }

    /// A superuser's connection string, by keywords.
    pub fn url(&self) -> String {
        let directory = self.directory.path().display();
        format!("host='{directory}' user=postgres password={PASSWORD} dbname=postgres")
    }

    /// Stops all of its processes until what is returned is dropped.
    pub fn freeze(&self) -> impl Send + use<> {
        let postmaster = Postmaster::adopt(&self.directory.path().join("data")).unwrap();
        postmaster.unwrap().freeze().unwrap()
    }

    /// A superuser's connection to `database`.
    pub async fn connect(&self, database: &str) -> Client {
        let (client, connection) = tokio_postgres::Config::new()
            .host_path(self.directory.path())
            .user("postgres")
            .password(PASSWORD)
            .dbname(database)
            .connect(NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let postmaster = rustix::process::Pid::from_child(&self.postmaster);
        // Immediate shutdown: the directory goes with it, there is nothing to keep.
        let _ = rustix::process::kill_process(postmaster, rustix::process::Signal::QUIT);
        let _ = self.postmaster.wait();
    }
}

fn program(name: &str) -> Command {
    let mut command = Command::new(binaries().join(name));
    command.env("LC_ALL", "C").stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        let user = uzers::get_user_by_name(UNPRIVILEGED).unwrap();
        command.uid(user.uid()).gid(user.primary_group_id());
    }
    command
}

/// The newest server the distribution installed.
fn binaries() -> PathBuf {
    (15..=18)
        .rev()
        .map(|version| Path::new("/usr/lib/postgresql").join(version.to_string()).join("bin"))
        .find(|directory| directory.join("postgres").exists())
        .expect("`make test` installs PostgreSQL where it is missing")
}
