//! A running Egret for a test: its directory, its ports, and who runs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use egret_postgres::test_support::{Guardian, free_port, test_directory};
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// A place for one Egret: directory, ports, and who runs it.
pub struct Place {
    /// Everything of it is below this.
    pub directory: PathBuf,
    program: PathBuf,
    /// Of server, proxy and PostgreSQL.
    pub ports: [u16; 3],
    user: Option<(u32, u32)>,
    /// The command that runs the program, such as `prlimit`, with its arguments; empty: it is run as it is.
    pub runner: Vec<&'static str>,
    /// Settings beyond the usual, by variable.
    pub variables: Vec<(&'static str, String)>,
    _guardian: Guardian,
}

/// A running `egret serve`, `egret demo` or other command.
pub struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Place {
    /// A directory and ports of its own.
    pub fn new(purpose: &str) -> Self {
        let directory = test_directory(purpose);
        let guardian = Guardian::new(&directory);
        Self {
            program: PathBuf::from(env!("CARGO_BIN_EXE_egret")),
            ports: [free_port(), free_port(), free_port()],
            user: None,
            runner: Vec::new(),
            variables: Vec::new(),
            directory,
            _guardian: guardian,
        }
    }

    /// Its data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn begin(&self) -> Command {
        let Some((runner, arguments)) = self.runner.split_first() else {
            return Command::new(&self.program);
        };
        let mut command = Command::new(runner);
        command.args(arguments).arg(&self.program);
        command
    }

    /// A command that is not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.begin();
        command
            .args(arguments)
            .current_dir(&self.directory)
            .env("EGRET_DATA_DIR", self.data_dir())
            .env("EGRET_SERVER_PORT", self.ports[0].to_string())
            .env("EGRET_PROXY_PORT", self.ports[1].to_string())
            .env("EGRET_POSTGRES_PORT", self.ports[2].to_string())
            .env("EGRET_BRANCHES_VOLUME_SIZE", "1GB")
            .env("EGRET_BRANCHES_FREE_MIN", "64MB")
            .env("EGRET_BRANCHES_FREE_CRITICAL", "32MB")
            .env_remove("EGRET_CRASHES")
            .env_remove("EGRET_TOKEN")
            .env_remove("EGRET_URL")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid).env("HOME", &self.directory);
        }
        command
    }

    /// Starts the program and waits until it says that it is ready.
    pub fn start(&self, arguments: &[&str]) -> Server {
        self.start_until(arguments, "egret is ready")
    }

    /// Starts the program, of which some part must fail, and waits until it says that the others serve.
    pub fn start_partly(&self, arguments: &[&str]) -> Server {
        self.start_until(arguments, "egret serves, but not all of it")
    }

    fn start_until(&self, arguments: &[&str], greeting: &str) -> Server {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))
            .unwrap();
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains(greeting) {
            line.clear();
            if output.read_line(&mut line).unwrap() == 0 {
                panic!("it did not start: {}", self.log());
            }
        }
        Server { child, output }
    }

    /// Starts a command and leaves it alone.
    pub fn spawn(&self, arguments: &[&str]) -> Server {
        let mut command = self.command(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Server { child, output }
    }

    /// What the server answers to a GET without a token: status line, headers and body.
    pub fn get(&self, path: &str) -> String {
        self.get_with_head(path, "")
    }

    /// What it answers to a GET with this token.
    pub fn get_with_token(&self, path: &str, token: &str) -> String {
        self.get_with_head(path, &format!("authorization: Bearer {token}\r\n"))
    }

    /// The administrator's token.
    pub fn admin_token(&self) -> String {
        let text = std::fs::read_to_string(self.data_dir().join("admin.token")).unwrap();
        text.trim().to_owned()
    }

    fn get_with_head(&self, path: &str, head: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[0])).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: egret\r\n{head}connection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// What it wrote to standard error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap()
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must work and returns its JSON answer.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"))
    }

    /// What a new session through the proxy answers.
    pub fn psql(&self, url: &str, sql: &str) -> Result<String, String> {
        let output = Command::new("psql")
            .args(["-X", "-A", "-t", "-c", sql, url])
            .env_remove("PGPASSWORD")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if output.status.success() {
            return Ok(text(&output.stdout).trim().to_owned());
        }
        Err(text(&output.stderr))
    }

    /// The superuser's connection string of a database of the source.
    pub fn source(&self, database: &str) -> String {
        let password = std::fs::read_to_string(self.data_dir().join("superuser.password")).unwrap();
        let (password, port) = (password.trim(), self.ports[2]);
        format!("postgres://egret:{password}@127.0.0.1:{port}/{database}")
    }

    /// The string by which a branch is reached.
    pub fn connection_string(&self, branch: &str, database: &str) -> String {
        let answer = self.json(&[
            "branch",
            "connect",
            branch,
            "--print",
            "--database",
            database,
        ]);
        answer["url"].as_str().unwrap().to_owned()
    }

    /// Processes that still have something to do with this directory.
    pub fn left_behind(&self) -> Vec<String> {
        let inside = |path: PathBuf| {
            std::fs::read_link(path).is_ok_and(|target| target.starts_with(self.data_dir()))
        };
        let mut left: Vec<String> = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter(|entry| inside(entry.path().join("cwd")))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let mine = self.directory.to_str().unwrap();
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains(mine))
                .map(str::to_owned),
        );
        left
    }
}

impl Server {
    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what it prints to standard output until a line holds `what`.
    pub fn read_until(&mut self, what: &str) -> String {
        let mut all = String::new();
        loop {
            let start = all.len();
            let read = self.output.read_line(&mut all).unwrap();
            assert!(read > 0, "it ended: {all}");
            if all[start..].contains(what) {
                return all;
            }
        }
    }

    /// Asks for a stop and waits; it must be a clean one.
    pub fn stop(mut self, signal: Signal) -> String {
        self.signal(signal);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        rest
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Interrupts it and returns its exit code.
    pub fn interrupt(mut self) -> Option<i32> {
        self.signal(Signal::INT);
        self.child.wait().unwrap().code()
    }

    /// Ends it as a crash does.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }
}

/// Output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes an ordinary user run the program from now on.
pub fn run_as(place: &mut Place, uid: u32, gid: u32) {
    // The directory that cargo builds in may be closed to others.
    let program = place.directory.join("egret");
    std::fs::copy(&place.program, &program).unwrap();
    for path in [&place.directory, &program] {
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
    }
    place.program = program;
    place.user = Some((uid, gid));
}
