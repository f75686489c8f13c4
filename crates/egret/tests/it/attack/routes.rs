//! Every published route, asked with made-up requests: none is answered by a server error.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::clients::installed;
use crate::place::{Place, text};

/// Seconds that one run may take; it takes about one minute.
const SECONDS_MAX: &str = "1800";

/// What the client goes by: the same requests each time, and nothing remembered.
const SETTINGS: &str = r#"
seed = 1
headers = { Authorization = "Bearer ${EGRET_TOKEN}" }
request-timeout = 120.0
suppress-health-check = ["all"]

[cache]
enabled = false

[generation]
max-examples = 3
database = "none"

[[operations]]
# A stream of events has no end; documents have a test of their own, with collections that are declared.
include-path-regex = "/events$|^/v1/(collections|documents|document-)"
enabled = false

[[operations]]
# The client would revoke its own token.
include-name = "DELETE /v1/tokens/{id}"
enabled = false

[[operations]]
# Each copies the source.
include-path-regex = "^/v1/branches"
phases.coverage.enabled = false
"#;

/// Asks all routes with a token; no answer may be a server error.
fn ask_all(place: &Place, token: &str, phases: &str) {
    std::fs::write(place.directory.join("schemathesis.toml"), SETTINGS).unwrap();
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/attack/routes.py");
    let python = installed("EGRET_TEST_PYTHON", "python/bin/python");
    let url = format!("http://127.0.0.1:{}", place.ports[0]);
    let output = Command::new("timeout")
        .arg(SECONDS_MAX)
        .arg(python.with_file_name("schemathesis"))
        .args(["run", "--no-color", "--checks", "no_server_error"])
        .args(["--phases", phases, "--url", &url])
        .arg(format!("{url}/openapi.json"))
        .env("SCHEMATHESIS_HOOKS", hooks)
        .env("EGRET_TOKEN", token)
        .env("NO_PROXY", "127.0.0.1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(&place.directory)
        .output()
        .unwrap();
    let said = text(&[output.stdout, output.stderr].concat());
    assert!(output.status.success(), "{}: {said}", output.status);
}

#[test]
fn no_made_up_request_is_answered_by_a_server_error() {
    let mut place = Place::new("attack-routes");
    place.variables.push(("EGRET_BRANCHES_VOLUME", "copy".to_owned()));
    let server = place.start(&["serve"]);
    let token = |arguments: &[&str]| {
        let made = place.json(&[&["token", "create", "made-up"], arguments].concat());
        made["token"].as_str().unwrap().to_owned()
    };
    let tenant = token(&["--tenant", "acme", "--scope", "admin"]);
    let narrow = token(&["--scope", "queue/q:produce"]);
    // Values at the bounds of each parameter reach most with the rights of the operator.
    let all = "coverage,fuzzing";
    for (token, phases) in [(place.admin_token(), all), (tenant, "fuzzing"), (narrow, "fuzzing")] {
        ask_all(&place, &token, phases);
        let ready = place.get("/readyz");
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    }
    server.stop(Signal::TERM);
    let log = place.log();
    let unexpected: Vec<&str> =
        log.lines().filter(|line| line.contains(" ERROR ") || line.contains("panicked")).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}
