//! `egret bench` with an Egret of its own: what it leaves behind, and what it exits with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use egret_postgres_test::{Guardian, test_directory};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A directory with a workload, in which temporary directories are made too.
struct Bench {
    directory: PathBuf,
    _guardian: Guardian,
}

impl Bench {
    fn new(setup: &str) -> Self {
        let directory = test_directory("bench");
        let guardian = Guardian::new(&directory);
        fs::create_dir(directory.join("tmp")).unwrap();
        fs::set_permissions(directory.join("tmp"), fs::Permissions::from_mode(0o711)).unwrap();
        let workload = format!(
            "name = \"x\"\nprivate_setup = [{setup}]\n[[transaction]]\nname = \"one\"\nstatements = [\"SELECT 1\"]\n"
        );
        fs::write(directory.join("workload.toml"), workload).unwrap();
        Self { directory, _guardian: guardian }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_egret"));
        command
            .arg("bench")
            .args(line.split_whitespace())
            .current_dir(&self.directory)
            .env("TMPDIR", self.directory.join("tmp"))
            // Another server's, which must not become the private one's.
            .env("EGRET_POSTGRES_URL", "postgres://nowhere.invalid/x")
            .env("EGRET_TOKEN", "not-its-token")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.directory.join(name)).unwrap()).unwrap()
    }

    /// Files of a private Egret, and processes that still work in them.
    fn left_behind(&self) -> Vec<PathBuf> {
        let tmp = self.directory.join("tmp");
        let files = fs::read_dir(&tmp).unwrap().flatten();
        let mut left: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        left.extend(processes.map(|entry| entry.path()).filter(|process| {
            fs::read_link(process.join("cwd")).is_ok_and(|target| target.starts_with(&tmp))
        }));
        left
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_private_egret_is_measured_and_gone() {
    let bench = Bench::new("");
    let output = bench.run(
        "sql --private --file workload.toml --duration 1s --warmup-max 100ms --clients 2 \
         --profile --explain --out result.json --set server.access_log=true",
    );
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("capacity"), "{out}");
    let result = bench.json("result.json");
    assert!(result["metrics"]["one"]["samples"].as_u64().unwrap() > 10);
    assert_eq!(result["parameters"]["set"]["server.access_log"], "true");
    let environment = &result["environment"];
    assert_eq!(environment["build_profile"], "dev");
    // What the server says of itself is what both programs were built from.
    let generator = &environment["generator"];
    assert_eq!(environment["egret_commit"], generator["commit"]);
    assert_eq!(environment["egret_version"], generator["version"]);
    assert_ne!(environment["binary_sha256"], generator["binary_sha256"]);
    assert!(result["environment"]["fsync_ms"].as_f64().unwrap() > 0.0);
    let plans = bench.json(result["attachments"]["explain"].as_str().unwrap());
    assert_eq!(plans[0]["statement"], "SELECT 1");
    let profile = result["attachments"]["profile"].as_str().unwrap();
    assert!(bench.directory.join(profile).exists());
    assert_eq!(bench.left_behind(), Vec::<PathBuf>::new());
}

/// Starts a measurement and returns when its private Egret is in use.
fn in_use() -> (Bench, Child) {
    let bench = Bench::new("\"COPY (SELECT 1) TO '{fifo}'\"");
    let fifo = bench.directory.join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    fs::set_permissions(&fifo, fs::Permissions::from_mode(0o666)).unwrap();
    let workload = fs::read_to_string(bench.directory.join("workload.toml")).unwrap();
    let named = workload.replace("{fifo}", fifo.to_str().unwrap());
    fs::write(bench.directory.join("workload.toml"), named).unwrap();
    let child = bench
        .command("sql --private --file workload.toml --duration 60s --out result.json")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Opened for reading until the server has written.
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "1\n");
    (bench, child)
}

#[test]
fn a_private_egret_is_gone_after_an_interruption() {
    let (bench, child) = in_use();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("interrupted by SIGINT: nothing was written"), "{err}");
    assert!(!bench.directory.join("result.json").exists());
    assert_eq!(bench.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn a_private_egret_is_gone_after_a_failure() {
    let bench = Bench::new("\"SELECT no_such_column\"");
    let output = bench.run("sql --private --file workload.toml");
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("column \"no_such_column\" does not exist"), "{err}");
    assert_eq!(bench.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn exit_codes_tell_what_went_wrong() {
    let bench = Bench::new("");
    let check = |line: &str, code: i32, expected: &str| {
        let output = bench.run(line);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {err}");
        assert!(err.contains(expected), "{line}: {err}");
    };
    let nobody = "sql --file workload.toml --url postgres://x:secret@127.0.0.1:1/x";
    check(nobody, 3, "no PostgreSQL answers at 127.0.0.1:1");
    let no_egret =
        "sql --file workload.toml --url postgres://127.0.0.1:1/x --server http://127.0.0.1:1";
    check(no_egret, 3, "no egret answers at http://127.0.0.1:1");
    check("sql --file workload.toml --url nonsense", 2, "the connection string cannot be read");
    check("sql --file missing.toml --private", 2, "built in are tpcb-like.toml");
    check(
        "sql --file workload.toml --private --out no/such/r.json",
        2,
        "cannot write a file there",
    );
    check("sqll", 2, "a similar subcommand exists: 'sql'");
    check("--server http://127.0.0.1:1", 2, "unexpected argument");
    assert!(!text(&bench.run(nobody).stderr).contains("secret"));
    let help = bench.run("--help");
    assert!(text(&help.stdout).contains("Exit codes of a scenario: 0 measured"));
    assert_eq!(bench.left_behind(), Vec::<PathBuf>::new());
}
