//! A running Egret for a test: its directory, its ports, and the user that runs it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use egret_base_test::eventually_blocking;
use egret_postgres_test::{Guardian, free_port, test_directory};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long a test waits for a program. One that takes longer hangs: the test fails then instead of
/// holding up all others.
const PATIENCE: Duration = Duration::from_secs(300);

/// What Egret prints once all of it serves.
const READY: &str = "egret is ready";

/// What it prints once it serves without the parts that have failed.
const PARTLY: &str = "egret serves, but some parts have failed";

/// The file that servers write their standard error to.
const LOG: &str = "log";

/// Lines of a file that are shown of a program that has ended.
const LINES_SHOWN: usize = 60;

/// How often a server is killed by a crash test: `EGRET_CRASHES` where it is set, `default`
/// otherwise.
pub fn crashes(default: u64) -> u64 {
    std::env::var("EGRET_CRASHES").map_or(default, |text| text.parse().unwrap())
}

/// What a new session answers, or else what psql, with these options beside the usual ones, says.
pub fn psql(options: &[&str], url: &str, sql: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args(["-X", "-A", "-t"])
        .args(options)
        .args(["-c", sql, url])
        .env_remove("PGPASSWORD")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(text(&output.stdout).trim().to_owned());
    }
    Err(text(&output.stderr))
}

/// A place for one Egret: directory, ports, and the user that runs it.
pub struct Place {
    /// Everything of it is below this.
    pub directory: PathBuf,
    program: PathBuf,
    /// Of server, proxy and PostgreSQL.
    pub ports: [u16; 3],
    user: Option<(u32, u32)>,
    /// The command that runs the program, such as `prlimit`, with its arguments; empty: it is run
    /// as it is.
    pub runner: Vec<&'static str>,
    /// Settings beyond the usual, by variable.
    pub variables: Vec<(&'static str, String)>,
    _guardian: Guardian,
    _watch: Watch,
}

/// How long one test may take. One that takes longer hangs, whatever it waits for.
const TEST_MAX: Duration = Duration::from_secs(900);

/// The tests that run, by number, with their deadlines.
static RUNNING: Mutex<BTreeMap<u64, (String, Instant)>> = Mutex::new(BTreeMap::new());

/// Ends all tests when one of them hangs, and names it: a run that ends by its runner's limit names
/// none.
struct Watch(u64);

impl Watch {
    fn begin() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        static WATCHING: Once = Once::new();
        WATCHING.call_once(|| drop(std::thread::spawn(Self::watch)));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        let deadline = Instant::now() + TEST_MAX;
        RUNNING.lock().unwrap().insert(number, (name, deadline));
        Self(number)
    }

    fn watch() {
        loop {
            std::thread::park_timeout(Duration::from_secs(1));
            let running = RUNNING.lock().unwrap();
            let late = running.values().find(|(_, until)| *until < Instant::now());
            if let Some((name, _)) = late {
                // Past the capture of the tests' output.
                let _ = writeln!(std::io::stderr(), "test {name} has hung for {TEST_MAX:?}");
                std::process::exit(101);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        RUNNING.lock().unwrap().remove(&self.0);
    }
}

/// A running `egret serve`, `egret demo` or other command.
pub struct Server {
    child: Child,
    /// Where its standard error goes.
    errors: PathBuf,
    /// What the server of its place says.
    log: PathBuf,
    /// The lines of its standard output, each with its end.
    lines: Mutex<Receiver<String>>,
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
            _watch: Watch::begin(),
        }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The program ends by SIGINT even if the tests run where that is ignored.
    fn begin(&self) -> Command {
        let mut command = Command::new("/usr/bin/env");
        command.arg("--default-signal=INT").args(&self.runner).arg(&self.program);
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
        self.start_until(arguments, READY)
    }

    /// Starts the program, of which some part must fail, and waits until it says that the others
    /// serve.
    pub fn start_partly(&self, arguments: &[&str]) -> Server {
        self.start_until(arguments, PARTLY)
    }

    fn start_until(&self, arguments: &[&str], greeting: &str) -> Server {
        let mut server = self.begin_with(arguments, LOG);
        while let Some(line) = server.line() {
            if line.contains(greeting) {
                return server;
            }
            // Whichever greeting comes, there is no second one.
            if line.contains(READY) || line.contains(PARTLY) {
                break;
            }
        }
        panic!("it did not start as expected: {}", self.log());
    }

    /// Starts a command and leaves it alone.
    pub fn spawn(&self, arguments: &[&str]) -> Server {
        self.begin_with(arguments, "errors")
    }

    /// Starts a command whose standard error is appended to a file of this name.
    fn begin_with(&self, arguments: &[&str], errors: &str) -> Server {
        let errors = self.directory.join(errors);
        let appended = std::fs::File::options().create(true).append(true).open(&errors).unwrap();
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(appended);
        Server::spawn(command, errors, self.directory.join(LOG))
    }

    /// What the server answers to a GET without a token: status line, headers and body.
    pub fn get(&self, path: &str) -> String {
        self.get_with_head(path, "")
    }

    /// What it answers to a GET with this token.
    pub fn get_with_token(&self, path: &str, token: &str) -> String {
        self.get_with_head(path, &format!("authorization: Bearer {token}\r\n"))
    }

    pub fn admin_token(&self) -> String {
        let text = std::fs::read_to_string(self.data_dir().join("admin.token")).unwrap();
        text.trim().to_owned()
    }

    fn get_with_head(&self, path: &str, head: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[0])).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: egret\r\n{head}connection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// What it wrote to standard error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join(LOG)).unwrap()
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let (done, ended) = channel::<()>();
        let watching = std::thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // It may have ended at this moment.
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let output = child.wait_with_output().unwrap();
        drop(done);
        watching.join().unwrap();
        output
    }

    /// Runs a command that must work and returns its JSON answer.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"))
    }

    /// What a new session through the proxy answers, or else what psql says.
    pub fn psql(&self, url: &str, sql: &str) -> Result<String, String> {
        psql(&[], url, sql)
    }

    /// The superuser's connection string of a database of the source.
    pub fn source(&self, database: &str) -> String {
        let password = std::fs::read_to_string(self.data_dir().join("superuser.password")).unwrap();
        let (password, port) = (password.trim(), self.ports[2]);
        format!("postgres://egret:{password}@127.0.0.1:{port}/{database}")
    }

    /// Kills the PostgreSQL server of the source.
    pub fn kill_source(&self) {
        let pid = "SELECT (regexp_split_to_array(pg_read_file('postmaster.pid'), E'\\n'))[1]";
        let pid = self.psql(&self.source("postgres"), pid).unwrap();
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }

    /// The string by which a branch is reached.
    pub fn connection_string(&self, branch: &str, database: &str) -> String {
        let answer = self.json(&["branch", "connect", branch, "--print", "--database", database]);
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
        left.extend(mounts.lines().filter(|line| line.contains(mine)).map(str::to_owned));
        left
    }
}

impl Server {
    fn spawn(mut command: Command, errors: PathBuf, log: PathBuf) -> Self {
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            loop {
                let mut line = String::new();
                let read = output.read_line(&mut line).unwrap();
                // The test may be over before the program's output is.
                if read == 0 || sender.send(line).is_err() {
                    return;
                }
            }
        });
        let lines = Mutex::new(lines);
        Self { child, errors, log, lines }
    }

    /// Fails: it has ended although more was expected of it.
    fn ended(&mut self, printed: &str) -> ! {
        let status = self.child.wait();
        let last = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
        };
        let (errors, log) = (last(&self.errors), last(&self.log));
        panic!(
            "it ended ({status:?}): {printed}\nits standard error:\n{errors}\nthe server's:\n{log}"
        );
    }

    /// The next line of its output; `None` at the end.
    fn line(&mut self) -> Option<String> {
        match self.lines.get_mut().unwrap().recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.give_up("prints nothing"),
        }
    }

    /// Waits for the end of its output, and of itself.
    fn wait(&mut self) -> ExitStatus {
        while self.line().is_some() {}
        self.child.wait().unwrap()
    }

    /// Ends a program that hangs, and says where its threads are.
    fn give_up(&mut self, problem: &str) -> ! {
        let tasks = format!("/proc/{}/task", self.child.id());
        let tasks = std::fs::read_dir(tasks).into_iter().flatten().flatten();
        let threads: Vec<String> = tasks
            .map(|task| {
                let read = |name| std::fs::read_to_string(task.path().join(name));
                let (name, wait) = (read("comm"), read("wchan"));
                format!("{:?} in {:?}", name.unwrap_or_default(), wait.unwrap_or_default())
            })
            .collect();
        let ended = self.child.kill().and_then(|()| self.child.wait());
        panic!("the program {problem} for {PATIENCE:?} ({ended:?}): {threads:?}");
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what it prints to standard output until a line holds `what`.
    pub fn read_until(&mut self, what: &str) -> String {
        let mut all = String::new();
        loop {
            let Some(line) = self.line() else {
                self.ended(&all);
            };
            all.push_str(&line);
            if line.contains(what) {
                return all;
            }
        }
    }

    /// Waits until its standard error holds `what`.
    #[track_caller]
    pub fn await_error(&mut self, what: &str) {
        eventually_blocking(&format!("standard error contains {what:?}"), || {
            let errors = std::fs::read_to_string(&self.errors).unwrap();
            if errors.contains(what) {
                return Ok(());
            }
            if !self.is_running() {
                self.ended("");
            }
            Err(errors)
        });
    }

    /// Asks for a stop and waits; it must be a clean one.
    pub fn stop(mut self, signal: Signal) -> String {
        self.signal(signal);
        let rest = std::iter::from_fn(|| self.line()).collect();
        let status = self.wait();
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
        self.wait().code()
    }

    /// Ends it as a crash does.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }
}

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
