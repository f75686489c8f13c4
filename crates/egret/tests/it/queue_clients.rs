//! Egret's own clients for Python and TypeScript: their tests, against a real server that is killed
//! and stopped when they ask for it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::clients::installed;
use crate::place::{Place, text};

fn sources(client: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(client)
}

/// A place for a server on which leases end as soon after a start as later.
fn place(purpose: &str) -> Place {
    let mut place = Place::new(purpose);
    place.variables.push(("EGRET_QUEUE_LEASE_GRACE", "100ms".to_owned()));
    place
}

/// Runs tests that find the server by their environment. A line `KILL` or `STOP` of theirs asks for
/// another server on the same files and port, and is answered by a line when it is there.
fn run(place: &Place, tests: &mut Command) {
    let mut server = place.start(&["serve"]);
    let token = std::fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
    let errors = std::fs::File::create(place.directory.join("tests.log")).unwrap();
    let mut child = tests
        .env("EGRET_URL", format!("http://127.0.0.1:{}", place.ports[0]))
        .env("EGRET_TOKEN", token.trim())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .unwrap();
    let mut answers = child.stdin.take().unwrap();
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.trim() {
            "KILL" => server.kill(),
            "STOP" => drop(server.stop(Signal::TERM)),
            _ => {
                said.push_str(&line);
                said.push('\n');
                continue;
            }
        }
        server = place.start(&["serve"]);
        writeln!(answers, "up").unwrap();
    }
    let status = child.wait().unwrap();
    let errors = std::fs::read_to_string(place.directory.join("tests.log")).unwrap();
    assert!(status.success(), "{tests:?}: {status}: {said}{errors}");
    server.stop(Signal::TERM);
    let log = place.log();
    let unexpected: Vec<&str> =
        log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

fn python() -> Command {
    let mut python = Command::new(installed("EGRET_TEST_PYTHON", "python/bin/python"));
    python
        .current_dir(sources("python"))
        .env("PYTHONPATH", "src")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

#[test]
fn the_python_client_does_what_it_says() {
    let place = place("python");
    let mut tests = python();
    tests.args(["-m", "unittest", "discover", "-t", ".", "-s", "tests"]);
    run(&place, &mut tests);
}

#[test]
fn the_python_client_is_typed() {
    let place = Place::new("mypy");
    let mut mypy = python();
    mypy.args(["-m", "mypy", "--cache-dir"]).arg(place.directory.join("mypy"));
    succeed(&mut mypy);
}

#[test]
fn the_typescript_client_does_what_it_says() {
    let place = place("typescript");
    let built = place.directory.join("typescript");
    std::fs::create_dir(&built).unwrap();
    // A build of what is there now, away from the sources.
    let modules = installed("EGRET_TEST_TYPESCRIPT_MODULES", "typescript/node_modules");
    std::os::unix::fs::symlink(std::path::absolute(modules).unwrap(), built.join("node_modules"))
        .unwrap();
    for name in ["src", "test", "package.json", "tsconfig.json", "tsconfig.test.json"] {
        let source = sources("typescript").join(name);
        succeed(Command::new("cp").arg("-r").args([&source, &built]));
    }
    for project in ["tsconfig.json", "tsconfig.test.json"] {
        let compiler = built.join("node_modules/.bin/tsc");
        succeed(Command::new(compiler).current_dir(&built).args(["--project", project]));
    }
    for file in ["work", "operate", "faults", "restart"] {
        let mut tests = Command::new("node");
        let file = format!("dist-test/{file}.test.js");
        tests.current_dir(&built).args(["--test-reporter=tap", &file]);
        run(&place, &mut tests);
    }
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", text(&said));
}
