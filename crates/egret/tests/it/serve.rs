//! The program as a user runs it: started, looked at, killed, started again, stopped.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use egret_postgres::test_support::{Guardian, free_port, owner, test_directory};
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// A place for one Egret: directory, ports, and who runs it.
struct Place {
    directory: PathBuf,
    program: PathBuf,
    ports: [u16; 3],
    user: Option<(u32, u32)>,
    _guardian: Guardian,
}

/// A running `egret serve` or `egret demo`.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Place {
    fn new(purpose: &str) -> Self {
        let directory = test_directory(purpose);
        let guardian = Guardian::new(&directory);
        Self {
            program: PathBuf::from(env!("CARGO_BIN_EXE_egret")),
            ports: [free_port(), free_port(), free_port()],
            user: None,
            directory,
            _guardian: guardian,
        }
    }

    fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
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
            .env_remove("EGRET_TOKEN")
            .env_remove("EGRET_URL")
            .stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid).env("HOME", &self.directory);
        }
        command
    }

    /// Starts the program and waits until it says that it is ready.
    fn start(&self, arguments: &[&str]) -> Server {
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
        while !line.contains("egret is ready") {
            line.clear();
            if output.read_line(&mut line).unwrap() == 0 {
                panic!("it did not start: {}", self.log());
            }
        }
        Server { child, output }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must work and returns its JSON answer.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"))
    }

    /// What a new session through the proxy answers.
    fn psql(&self, url: &str, sql: &str) -> Result<String, String> {
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

    fn connection_string(&self, branch: &str, database: &str) -> String {
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
    fn left_behind(&self) -> Vec<String> {
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
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Asks for a stop and waits; it must be a clean one.
    fn stop(mut self, signal: Signal) -> String {
        self.signal(signal);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        rest
    }

    fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run_as(place: &mut Place, uid: u32, gid: u32) {
    // The directory that cargo builds in may be closed to others.
    let program = place.directory.join("egret");
    std::fs::copy(&place.program, &program).unwrap();
    for path in [&place.directory, &program] {
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
    }
    place.program = program;
    place.user = Some((uid, gid));
}

#[test]
fn ten_branches_survive_kill_9_and_sessions_reconnect() {
    let place = Place::new("kill");
    let server = place.start(&["serve"]);
    let names: Vec<String> = (0..10).map(|number| format!("b{number}")).collect();
    for name in &names {
        let made = place.json(&["branch", "create", name]);
        assert_eq!(made["state"], "running");
    }
    let urls: Vec<String> = names
        .iter()
        .map(|name| place.connection_string(name, "postgres"))
        .collect();
    for (number, url) in urls.iter().enumerate() {
        place
            .psql(
                url,
                &format!("CREATE TABLE mine AS SELECT {number} AS number"),
            )
            .unwrap();
    }
    server.kill();
    let refused = place.psql(&urls[0], "SELECT 1").unwrap_err();
    assert!(refused.contains("Connection refused"), "{refused}");
    let unreachable = place.run(&["branch", "list"]);
    assert_eq!(unreachable.status.code(), Some(3));
    assert!(
        text(&unreachable.stderr).contains("start it with `egret serve`"),
        "{}",
        text(&unreachable.stderr)
    );

    let server = place.start(&["serve"]);
    for (number, url) in urls.iter().enumerate() {
        assert_eq!(
            place.psql(url, "SELECT number FROM mine").unwrap(),
            number.to_string()
        );
    }
    assert_eq!(place.json(&["branch", "verify"])["consistent"], true);
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn a_second_egret_and_taken_ports_are_refused_by_name() {
    let place = Place::new("second");
    let server = place.start(&["serve"]);
    let second = place.run(&["serve"]);
    assert_eq!(second.status.code(), Some(1));
    let said = text(&second.stderr);
    assert!(
        said.contains(&format!("another egret (pid {})", server.child.id())),
        "{said}"
    );

    for (position, setting) in ["server.port", "proxy.port", "postgres.port"]
        .iter()
        .enumerate()
    {
        let mut other = Place::new("taken");
        other.ports[position] = place.ports[position];
        let refused = other.run(&["serve"]);
        assert_eq!(refused.status.code(), Some(1), "{setting}");
        let said = text(&refused.stderr);
        assert!(
            said.contains(setting) && said.contains("in use"),
            "{setting}: {said}"
        );
        assert_eq!(other.left_behind(), Vec::<String>::new());
    }
    server.stop(Signal::INT);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn an_ordinary_user_gets_branches_by_copying() {
    let mut place = Place::new("user");
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let nobody = owner();
    run_as(&mut place, nobody.uid, nobody.gid);
    let server = place.start(&["serve"]);
    let volume = place.json(&["branch", "volume", "show"]);
    assert_eq!(volume["driver"], "copy");
    assert!(
        place.log().contains("branches are made by copying"),
        "{}",
        place.log()
    );
    place.json(&["branch", "create", "one"]);
    let url = place.connection_string("one", "postgres");
    assert_eq!(place.psql(&url, "SELECT 6 * 7").unwrap(), "42");
    let wrong = url
        .replacen(":egret_branch:", ":egret_branch:x", 1)
        .replace("egret_branch:", "egret_branch:x");
    let refused = place.psql(&wrong, "SELECT 1").unwrap_err();
    assert!(
        refused.contains("password authentication failed"),
        "{refused}"
    );
    server.stop(Signal::INT);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn the_demo_tells_its_story_twice() {
    let place = Place::new("demo");
    for round in 0..2 {
        let server = place.start(&["demo"]);
        let pid = server.child.id();
        wait_for(&place, "Ctrl-C stops everything", round + 1);
        let count = place.json(&["branch", "query", "demo", "select count(*) from flights"]);
        assert_eq!(count["rows"][0][0], 336_776 - 58_665, "{pid}");
        server.stop(Signal::INT);
    }
    let log = place.log();
    assert!(log.contains("loaded 367687 rows (336776 flights"), "{log}");
    assert!(log.contains("the flights are there already"), "{log}");
    assert_eq!(
        log.matches("source unchanged, by checksums of 5 tables: yes")
            .count(),
        2,
        "{log}"
    );
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

/// Returns when the log holds `what` as often as `times`.
fn wait_for(place: &Place, what: &str, times: usize) {
    let file = place.directory.join("log");
    while read(&file).matches(what).count() < times {
        assert!(!read(&file).contains("egret: "), "{}", place.log());
        std::thread::yield_now();
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
