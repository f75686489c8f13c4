//! The program as a user meets it: exit codes, messages with advice, tables and JSON. The real
//! server's side of it is tested where the server is; a few canned answers stand for it here.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use egret_postgres_test::free_port;
use expect_test::{Expect, expect};
use serde_json::json;

const TOKEN: &str = "egret_right";

/// Answers as the server would, to a request with the right token.
async fn answer(request: Request) -> Response {
    let problem = |status: StatusCode, code: &str, detail: &str| {
        let body =
            json!({"status": status.as_u16(), "code": code, "detail": detail, "request_id": "r-1"});
        (status, Json(body)).into_response()
    };
    let token = request.headers().get(header::AUTHORIZATION);
    if token.is_none_or(|token| token != format!("Bearer {TOKEN}").as_str()) {
        return problem(StatusCode::UNAUTHORIZED, "unauthenticated", "a token is needed");
    }
    match (request.method().as_str(), request.uri().path()) {
        ("GET", "/v1/branches/gone") => {
            problem(StatusCode::NOT_FOUND, "branch_not_found", "there is no branch `gone`: `egret branch list` shows those there are")
        }
        ("GET", "/v1/branches/a%2Fb") => problem(StatusCode::BAD_REQUEST, "branch_name", "`a/b` is no name"),
        ("POST", "/v1/branches") => {
            let mut response = problem(StatusCode::TOO_MANY_REQUESTS, "limit_exceeded", "limit branches_count_max is 50");
            response.headers_mut().insert(header::RETRY_AFTER, "7".parse().unwrap());
            response
        }
        ("POST", "/v1/branches/demo/query") => Json(json!({
            "columns": [{"name": "carrier", "type": "text"}, {"name": "flights", "type": "int8"}],
            "rows": [["UA", 58665], ["\u{1b}[2J", null]],
            "command": "SELECT 2",
            "elapsed_ms": 12.25,
        }))
        .into_response(),
        ("GET", "/v1/branches/demo/connection") => Json(json!({
            "host": "127.0.0.1", "port": 7432, "database": "flights@demo", "user": "egret_branch",
            "password": "s3cret", "url": "postgres://egret_branch:s3cret@127.0.0.1:7432/flights@demo",
        }))
        .into_response(),
        ("GET", "/v1/branches") => Json(json!({"items": []})).into_response(),
        ("DELETE", "/v1/tokens/t-1") => StatusCode::NO_CONTENT.into_response(),
        ("GET", "/v1/status") => "hello, I am another server".into_response(),
        _ => problem(StatusCode::NOT_FOUND, "route_not_found", "no such path"),
    }
}

async fn serve() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The program with an empty environment, an empty data directory and `arguments`.
struct Egret {
    directory: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Egret {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data").display().to_string();
        std::fs::create_dir(&data).unwrap();
        Self { directory, variables: vec![("EGRET_DATA_DIR", data)] }
    }

    fn at(address: SocketAddr) -> Self {
        let mut egret = Self::new();
        egret.variables.push(("EGRET_URL", format!("http://{address}")));
        egret.variables.push(("EGRET_TOKEN", TOKEN.to_owned()));
        egret
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.retain(|(other, _)| *other != name);
        self.variables.push((name, value.into()));
        self
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_egret"))
            .args(arguments)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.directory.path())
            .output()
            .unwrap()
    }

    /// Exit code, standard output and standard error in one text.
    fn check(&self, arguments: &[&str], expected: Expect) {
        let output = self.run(arguments);
        let text = format!(
            "exit {}\n{}{}",
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap()
        );
        expected
            .assert_eq(&text.replace(&self.directory.path().display().to_string(), "DIRECTORY"));
    }
}

/// An address on which nothing listens.
fn nowhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

#[test]
fn a_server_that_does_not_run() {
    let address = nowhere();
    let egret = Egret::at(address);
    let output = egret.run(&["status"]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        text,
        format!(
            "error: server not running: start it with `egret serve`\n \
             hint: tried http://{address}/: Connection refused (os error 111)\n"
        )
    );
    let with_password = format!("http://admin:TOPSECRET@{address}");
    let output = egret.run(&["status", "--url", &with_password]);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), text);
    let output = egret.run(&["status", "--json"]);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["code"], "server_unreachable");
    assert_eq!(error["error"]["exit_code"], 3);
}

#[test]
fn wrong_usage_and_wrong_configuration() {
    let egret = Egret::new();
    assert_eq!(egret.run(&["branch", "creat", "x"]).status.code(), Some(2));
    egret.check(
        &["config", "--set", "egret.log_levle=debug"],
        expect![[r#"
            exit 2
            error: flag --set egret.log_levle=debug: unknown setting `egret.log_levle`: did you mean `egret.log_level`?
        "#]],
    );
    egret.check(
        &["status", "--url", "admin:TOPSECRET@egret.example:7070"],
        expect![[r#"
            exit 2
            error: `egret.example:7070` is not the address of a server: write for example http://127.0.0.1:7070
        "#]],
    );
    egret.check(
        &["status", "--url", "ftp://x"],
        expect![[r#"
            exit 2
            error: `ftp://x` is not the address of a server: write for example http://127.0.0.1:7070
        "#]],
    );
    std::fs::write(egret.directory.path().join("egret.toml"), "[egret]\nlog_level = 7 7\n")
        .unwrap();
    let output = egret.run(&["config"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error: egret.toml:2: "), "{text}");
}

#[test]
fn settings_with_their_origins() {
    let egret = Egret::new().with("EGRET_LOG_LEVEL", "debug");
    std::fs::write(egret.directory.path().join("egret.toml"), "[egret]\n\nlog_format = \"json\"\n")
        .unwrap();
    let output = egret.run(&["config"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in ["environment EGRET_LOG_LEVEL", "environment EGRET_DATA_DIR", "egret.toml:3"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains('\u{1b}'), "colours go to a terminal only: {text}");
    let output = egret.run(&["config", "--json"]);
    let all: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let level = all.iter().find(|setting| setting["key"] == "egret.log_level").unwrap();
    assert_eq!(level["value"], "debug");
    let coloured = egret.run(&["config", "--color", "always"]);
    assert!(String::from_utf8(coloured.stdout).unwrap().contains('\u{1b}'));
}

#[test]
fn completions_know_the_commands() {
    let output = Egret::new().run(&["completions", "bash"]);
    assert!(
        String::from_utf8(output.stdout).unwrap().contains("egret__subcmd__branch__subcmd__create")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_refusals() {
    let egret = Egret::at(serve().await);
    egret.check(
        &["branch", "show", "gone"],
        expect![[r#"
            exit 1
            error: there is no branch `gone`: `egret branch list` shows those there are
             request r-1
        "#]],
    );
    egret.check(
        &["branch", "show", "a/b"],
        expect![[r#"
            exit 1
            error: `a/b` is no name
             request r-1
        "#]],
    );
    egret.check(
        &["branch", "create", "one-more"],
        expect![[r#"
            exit 1
            error: limit branches_count_max is 50
             hint: try again in 7 s
             request r-1
        "#]],
    );
    let output = egret.run(&["status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("is not Egret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_token_comes_from() {
    let address = serve().await;
    let none = Egret::at(address).with("EGRET_TOKEN", "");
    none.check(
        &["branch", "list"],
        expect![[r#"
            exit 1
            error: a token is needed
             hint: no token was found: set EGRET_TOKEN or give --token-file; the first start of the server writes one to admin.token in the data directory
             request r-1
        "#]],
    );
    let admin = none.directory.path().join("data/admin.token");
    std::fs::write(&admin, format!("{TOKEN}\n")).unwrap();
    none.check(
        &["branch", "list"],
        expect!["exit 0\nno branches: create one with `egret branch create NAME`\n"],
    );

    // The flag wins over the variable, the variable over the data directory.
    let wrong = Egret::at(address).with("EGRET_TOKEN", "egret_wrong");
    wrong.check(
        &["branch", "list"],
        expect![[r#"
            exit 1
            error: a token is needed
             hint: the token is unknown, revoked or expired: `egret token list` lists the valid ones
             request r-1
        "#]],
    );
    wrong.check(
        &["branch", "list", "--token-file", &admin.display().to_string()],
        expect!["exit 0\nno branches: create one with `egret branch create NAME`\n"],
    );
    wrong.check(
        &["branch", "list", "--token-file", "gone.token"],
        expect![[r#"
            exit 2
            error: token file gone.token: No such file or directory (os error 2)
        "#]],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_as_a_table_or_as_json() {
    let egret = Egret::at(serve().await);
    egret.check(
        &["branch", "query", "demo", "SELECT …"],
        expect![[r#"
            exit 0
             carrier   | flights
            -----------+---------
             UA        | 58665
             \u{1b}[2J |

            SELECT 2 (12.2 ms)
        "#]],
    );
    let output = egret.run(&["--json", "branch", "query", "demo", "SELECT …"]);
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows["rows"][0], json!(["UA", 58665]));
    egret.check(&["token", "revoke", "t-1"], expect!["exit 0\ntoken t-1 revoked\n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn slips_are_told_and_nothing_found_is_told_as_such() {
    let egret = Egret::at(serve().await);
    let twice = ["branch", "create", "x", "--label", "k=1", "--label", "k=2"];
    egret.check(
        &twice,
        expect![[r#"
            exit 2
            error: --label gives k twice, as `1` and as `2`
        "#]],
    );
    egret.check(
        &["branch", "list", "--state", "failed", "--label", "k=1"],
        expect!["exit 0\nno branches with label k=1 and in state failed\n"],
    );
    egret.check(
        &["branch", "resume", "x"],
        expect![[r#"
            exit 1
            error: this server has no branches: they need the embedded PostgreSQL, and it uses an external one (postgres.url)
             hint: unset postgres.url to run the embedded PostgreSQL; `egret status` shows which one this server uses
             request r-1
        "#]],
    );
}

#[test]
fn wrong_usage_is_json_for_who_asks_for_json() {
    let egret = Egret::new();
    let error = |arguments: &[&str]| {
        let output = egret.run(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(output.stdout, b"");
        let answer: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(answer["error"]["code"], "usage");
        answer["error"]["detail"].as_str().unwrap().to_owned()
    };
    assert_eq!(error(&["--json", "branch", "creat", "x"]), "unrecognized subcommand 'creat'");
    assert_eq!(
        error(&["branch", "create", "x", "--ttl", "soon", "--json"]).lines().next(),
        Some(
            "invalid value 'soon' for '--ttl <DURATION>': `soon` is not a duration such as 250ms, 30s, 15min, 2h or 7d"
        )
    );
    assert_eq!(error(&["--json"]), "a command is missing");
    let people = egret.run(&["branch", "connect", "x", "--color", "--", "--json"]);
    let text = String::from_utf8(people.stderr).unwrap();
    assert!(text.starts_with("error: "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_keeps_the_password_off_the_command_line() {
    let address = serve().await;
    let programs = tempfile::tempdir().unwrap();
    let egret = Egret::at(address).with("PATH", programs.path().display().to_string());
    let url = "postgres://egret_branch:s3cret@127.0.0.1:7432/flights@demo";
    let psql = programs.path().join("psql");
    std::fs::write(
        &psql,
        "#!/bin/sh\necho \"$@|$PGHOST|$PGPORT|$PGDATABASE|$PGUSER|$PGPASSWORD\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&psql, std::fs::Permissions::from_mode(0o755)).unwrap();
    egret.check(
        &["branch", "connect", "demo", "--", "-c", "select 1"],
        expect!["exit 0\n-c select 1|127.0.0.1|7432|flights@demo|egret_branch|s3cret\n"],
    );
    egret.check(
        &["branch", "connect", "demo", "--print"],
        expect![[r#"
        exit 0
        postgres://egret_branch:s3cret@127.0.0.1:7432/flights@demo
    "#]],
    );
    assert!(
        String::from_utf8(egret.run(&["branch", "connect", "demo", "--json"]).stdout)
            .unwrap()
            .contains(url)
    );
}

/// Where `psql` may be beside the directories of PATH.
const SYSTEM_PSQL: [&str; 4] =
    ["/usr/local/sbin/psql", "/usr/local/bin/psql", "/usr/sbin/psql", "/usr/bin/psql"];

#[tokio::test(flavor = "multi_thread")]
async fn without_psql_connecting_says_how_to_install_it() {
    let address = serve().await;
    let egret = Egret::at(address);
    // A mount namespace in which nothing named psql is a program; it ends with the command.
    let mut script = String::new();
    for program in SYSTEM_PSQL.iter().filter(|path| Path::new(path).exists()) {
        script.push_str(&format!("mount --bind /dev/null {program} && "));
    }
    script.push_str(r#"PATH= exec "$0" "$@""#);
    let mut isolated = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        isolated.args(["--user", "--map-root-user"]);
    }
    let output = isolated
        .args(["--mount", "/bin/sh", "-c", &script])
        .arg(env!("CARGO_BIN_EXE_egret"))
        .args(["branch", "connect", "demo"])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .envs(egret.variables.iter().map(|(name, value)| (name, value)))
        .current_dir(egret.directory.path())
        .output()
        .unwrap();
    expect![[r#"
        exit Some(1)
        error: psql is not installed in a trusted directory of PATH
         hint: install it (Debian, Ubuntu: apt-get install postgresql-client; Fedora: dnf install postgresql; macOS: brew install libpq), or give another client what `egret branch connect demo --print` prints
    "#]]
    .assert_eq(&format!(
        "exit {:?}\n{}{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ));
}
