//! Another user of the same machine: files, programs and ports that this user controls decide
//! nothing, and the secrets of Egret are not shown to this user.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown};
use std::path::Path;
use std::process::{Output, Stdio};

use rustix::process::Signal;

use crate::place::{Place, text};

const STRANGER: u32 = 4_242;
const SECRET: &str = "TOPSECRET";

/// Only root can give files and sockets to another user.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn refused(output: &Output, code: i32, reason: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(reason), "{said}");
}

#[test]
fn a_configuration_file_that_others_can_change_is_not_read() {
    let place = Place::new("foreign-toml");
    let file = place.directory.join("egret.toml");
    fs::write(&file, "[server]\nport = 26902\n").unwrap();
    mode(&file, 0o666);
    refused(&place.run(&["config"]), 2, "egret.toml can be written by other users");
    let named = place.run(&["config", "--config", "egret.toml"]);
    refused(&named, 2, "every user can write to it");
    mode(&file, 0o644);
    assert!(place.run(&["config"]).status.success());
    mode(&place.directory, 0o777);
    refused(&place.run(&["config"]), 2, "can be written by other users");
    mode(&place.directory, 0o755);
    if is_root() {
        chown(&file, Some(STRANGER), None).unwrap();
        let said = format!("egret.toml belongs to user id {STRANGER}");
        refused(&place.run(&["status"]), 2, &said);
    }
}

#[test]
fn a_pipe_in_the_place_of_a_file_does_not_keep_a_command_waiting() {
    let place = Place::new("pipe-toml");
    let pipe = |path: &Path| {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
    };
    let file = place.directory.join("egret.toml");
    pipe(&file);
    if is_root() {
        chown(&file, Some(STRANGER), None).unwrap();
    }
    let said = "egret.toml: it is not a regular file";
    refused(&place.run(&["config"]), 2, said);
    fs::remove_file(&file).unwrap();
    // Nor does one in the place of the admin token: the command goes on without a token.
    fs::create_dir_all(place.data_dir()).unwrap();
    pipe(&place.data_dir().join("admin.token"));
    assert!(!place.run(&["status"]).status.success());
}

#[test]
fn the_admin_token_is_not_sent_to_another_users_process() {
    if !is_root() {
        egret_base_test::not_checked("a process of another user takes root");
        return;
    }
    let place = Place::new("squatter");
    fs::create_dir(place.data_dir()).unwrap();
    fs::write(place.data_dir().join("admin.token"), SECRET).unwrap();
    let listener = TcpListener::bind(("127.0.0.1", place.ports[0])).unwrap();
    fchown(&listener, Some(STRANGER), None).unwrap();
    let squatter = std::thread::spawn(move || {
        let mut received = Vec::new();
        let (mut connection, _) = listener.accept().unwrap();
        // The end of the connection may be a reset; what came before counts.
        let _ = connection.read_to_end(&mut received);
        received
    });
    let status = place.run(&["status"]);
    refused(&status, 3, "the admin token was not sent");
    assert_eq!(text(&squatter.join().unwrap()), "");
}

#[test]
fn variables_of_an_orchestrator_are_no_settings() {
    let place = Place::new("kubernetes");
    let mut command = place.command(&["config", "--json"]);
    command
        .env("EGRET_SERVICE_HOST", "10.96.0.12")
        .env("EGRET_SERVICE_PORT", "7070")
        .env("EGRET_PORT", "tcp://10.96.0.12:7070")
        .env("EGRET_PORT_7070_TCP_ADDR", "10.96.0.12")
        .env("EGRET_PROXY_PORT", "tcp://10.96.0.13:7432");
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("EGRET_PORT, EGRET_PORT_7070_TCP_ADDR"), "{said}");
    let settings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = settings.as_array().unwrap();
    let proxy = all.iter().find(|one| one["key"] == "proxy.port").unwrap();
    assert_eq!(proxy["origin"], "default");
}

#[test]
fn a_data_directory_is_empty_or_egrets_and_keeps_its_mode() {
    let place = Place::new("data-dir");
    let data = place.data_dir();
    fs::create_dir(&data).unwrap();
    fs::write(data.join("somebodys"), "x").unwrap();
    mode(&data, 0o750);
    refused(&place.run(&["serve"]), 1, "is not Egret's and not empty");
    fs::remove_file(data.join("somebodys")).unwrap();
    mode(&data, 0o777);
    refused(&place.run(&["serve"]), 1, "chmod go-w");
    assert_eq!(fs::metadata(&data).unwrap().mode() & 0o7777, 0o777);
    if is_root() {
        mode(&data, 0o755);
        chown(&data, Some(STRANGER), None).unwrap();
        refused(&place.run(&["serve"]), 1, "belongs to user id 4242");
    }
}

#[test]
fn a_data_directory_that_is_closed_to_postgresql_stays_closed_and_is_named() {
    if !is_root() {
        egret_base_test::not_checked("PostgreSQL runs as another user where Egret is root");
        return;
    }
    let place = Place::new("data-dir-closed");
    let data = place.data_dir();
    place.start(&["serve"]).stop(Signal::TERM);
    mode(&data, 0o700);
    let server = place.start_partly(&["serve"]);
    let ready = place.get("/readyz");
    let reason = format!("directory {} is not accessible to user", data.display());
    assert!(ready.contains(&reason) && ready.contains("chmod o+x"), "{ready}");
    server.stop(Signal::TERM);
    assert_eq!(fs::metadata(&data).unwrap().mode() & 0o7777, 0o700);
    mode(&data, 0o711);
    place.start(&["serve"]).stop(Signal::TERM);
}

#[test]
fn programs_that_others_can_change_are_not_run() {
    let mut place = Place::new("foreign-bin");
    let bin = place.directory.join("bin");
    fs::create_dir(&bin).unwrap();
    let trace = place.directory.join("it-ran");
    for name in ["postgres", "initdb", "pg_ctl", "mkfs.btrfs", "useradd"] {
        let program = bin.join(name);
        let script = format!("#!/bin/sh\ntouch {}\n", trace.display());
        fs::write(&program, script).unwrap();
        mode(&program, 0o755);
    }
    mode(&bin, 0o777);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    place.variables.push(("PATH", path));
    let configured = format!("postgres.bin={}", bin.display());
    // What needs no program serves all the same.
    let server = place.start_partly(&["serve", "--set", &configured]);
    let ready = place.get("/readyz");
    assert!(ready.contains("can be written by other users"), "{ready}");
    server.stop(Signal::TERM);
    assert!(!trace.exists());
}

#[test]
fn a_password_in_an_argument_is_not_in_the_process_list() {
    let place = Place::new("ps");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://u:{SECRET}@127.0.0.1:{port}/db");
    for arguments in [
        vec!["check".to_owned(), url.clone()],
        vec!["check".to_owned(), "--set".to_owned(), format!("postgres.url={url}")],
        vec!["uninstall".to_owned(), url.clone()],
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = place.command(&arguments);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        // It connects, so it has read its arguments.
        let connection = listener.accept().unwrap();
        let shown = fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(connection);
        let shown = text(&shown);
        assert!(shown.contains("postgres://u:••••••@127.0.0.1"), "{shown}");
        assert!(!shown.contains(SECRET), "{shown}");
    }
}

#[test]
fn the_admin_token_is_printed_on_a_terminal_only() {
    let place = Place::new("token-stdout");
    let server = place.start(&["serve"]);
    let token = fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
    let printed = server.stop(Signal::TERM);
    assert!(printed.contains("admin.token"), "{printed}");
    assert!(!printed.contains(token.trim()), "{printed}");
    assert!(!place.log().contains(token.trim()));
}

#[test]
fn psql_runs_no_commands_from_the_home_directory_of_another_user() {
    if !is_root() {
        egret_base_test::not_checked("a directory of another user takes root");
        return;
    }
    let mut place = Place::new("foreign-home");
    let server = place.start(&["serve"]);
    place.json(&["branch", "create", "one"]);
    let home = place.directory.join("home");
    fs::create_dir(&home).unwrap();
    let witness = place.directory.join("commands-were-run");
    let command = format!("\\! touch {}\n", witness.display());
    fs::write(home.join(".psqlrc"), &command).unwrap();
    let binding = format!("\"s\": \"{}\"\n", command.replace('\\', "\\\\").replace('\n', "\\n"));
    fs::write(home.join(".inputrc"), binding).unwrap();
    let trusted = place.directory.join("own.psqlrc");
    fs::write(&trusted, "").unwrap();
    chown(&home, Some(STRANGER), None).unwrap();
    place.variables.push(("HOME", home.display().to_string()));
    // A file of one's own does not make the others of that directory trusted.
    let psqlrc = ("PSQLRC", trusted.display().to_string());
    for variables in [vec![], vec![psqlrc]] {
        let egret = place.command(&[]);
        let connect = format!("{} branch connect one", env!("CARGO_BIN_EXE_egret"));
        let variables_of_place = egret.get_envs();
        let mut terminal = std::process::Command::new("script");
        terminal
            .args(["--quiet", "--return", "--command", &connect, "/dev/null"])
            .current_dir(&place.directory)
            .envs(variables_of_place.filter_map(|(name, value)| Some((name, value?))))
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = terminal.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut shown = Vec::new();
        // Input that arrives before the prompt may be lost.
        while !text(&shown).contains("=> ") && !text(&shown).contains("=# ") {
            let mut bytes = [0; 1024];
            let count = output.read(&mut bytes).unwrap();
            assert!(count > 0, "no prompt: {}", text(&shown));
            shown.extend_from_slice(&bytes[..count]);
        }
        input.write_all(b"select 40 + 2;\n\\q\n").unwrap();
        drop(input);
        output.read_to_end(&mut shown).unwrap();
        child.wait().unwrap();
        let said = text(&shown);
        assert!(said.contains("42"), "{said}");
        assert!(said.contains("psql starts without startup file"), "{said}");
        assert!(!witness.exists(), "{said}");
    }
    server.stop(Signal::TERM);
}
