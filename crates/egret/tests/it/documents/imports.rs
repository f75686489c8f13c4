//! Imports of which the server cannot take all at once, and such that are broken off and go on.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use egret_base_test::eventually_blocking;
use reqwest::Client;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::{COLLECTIONS, DocumentsClient, beside, check};
use crate::place::{Place, text};

/// Which requests are refused: as many as have this text in their bodies, by this status.
#[derive(Default)]
struct Rule {
    text: &'static str,
    status: StatusCode,
    times: usize,
}

/// Stands before a server, and refuses some requests.
struct ImportProxy {
    url: String,
    rule: Arc<Mutex<Rule>>,
    _runtime: Runtime,
}

impl ImportProxy {
    fn before(place: &Place) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let rule = Arc::<Mutex<Rule>>::default();
        let server = format!("http://127.0.0.1:{}", place.ports[0]);
        let (http, kept) = (Client::builder().no_proxy().build().unwrap(), rule.clone());
        let app = Router::new().fallback(move |request: Request| pass(http, server, kept, request));
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self { url, rule, _runtime: runtime }
    }

    fn refuse(&self, text: &'static str, status: StatusCode, times: usize) {
        *self.rule.lock().unwrap() = Rule { text, status, times };
    }

    /// Flights with the second thousand of the file are refused.
    fn close(&self) {
        self.refuse("\"SFO\"", StatusCode::FORBIDDEN, usize::MAX);
    }

    fn open(&self) {
        self.refuse("", StatusCode::OK, 0);
    }
}

async fn pass(http: Client, server: String, rule: Arc<Mutex<Rule>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let refused = {
        let mut rule = rule.lock().unwrap();
        let is_meant = rule.times > 0 && String::from_utf8_lossy(&body).contains(rule.text);
        rule.times -= usize::from(is_meant);
        is_meant.then_some(rule.status)
    };
    if let Some(status) = refused {
        let problem = json!({"code": "closed", "detail": "the gate is closed"});
        return (status, Json(problem)).into_response();
    }
    for own in [header::HOST, header::CONTENT_LENGTH] {
        parts.headers.remove(own);
    }
    let request = http.request(parts.method, format!("{server}{}", parts.uri));
    let answer = request.headers(parts.headers).body(body).send().await.unwrap();
    let (status, kind) = (answer.status(), answer.headers()[header::CONTENT_TYPE].clone());
    let body = answer.bytes().await.unwrap();
    (status, [(header::CONTENT_TYPE, kind)], body).into_response()
}

fn declare(door: &DocumentsClient) {
    let collections: Value = serde_json::from_str(COLLECTIONS).unwrap();
    assert_eq!(door.post("collections", &collections).status, 200);
}

fn write(place: &Place, name: &str, lines: impl Iterator<Item = Value>) {
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    std::fs::write(place.directory.join(name), text).unwrap();
}

fn write_airports(place: &Place, count: usize) {
    let lines = (1..=count).map(|number| json!({"faa": format!("A{number}")}));
    write(place, "airports.ndjson", lines);
}

/// Flights from JFK, which is there, but for one of the first thousand lines and one of the second.
fn write_flights(place: &Place, count: usize) {
    let lines = (1..=count).map(|number| {
        let origin = match number {
            10 => "LAX",
            1_500 => "SFO",
            _ => "JFK",
        };
        json!({"number": number, "origin": origin})
    });
    write(place, "flights.ndjson", lines);
}

fn read(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.directory.join(name)).unwrap()
}

const FLIGHTS: [&str; 4] = ["document", "import", "flights", "flights.ndjson"];

/// An import of flights that ends so.
fn import(place: &Place, url: &str, more: &[&str], expected: &[&str]) -> String {
    let arguments = [&FLIGHTS[..], &["--url", url], more].concat();
    // There are always lines that are refused.
    check(place, 1, "", &arguments, expected)
}

#[test]
fn what_was_refused_before_is_known_after_an_import_goes_on() {
    let (_external, place, server) = beside("documents-imports");
    let door = DocumentsClient::of(&place);
    declare(&door);
    let made = door.post("documents/airports", &json!({"faa": "JFK"}));
    assert_eq!(made.status, 201);
    write_flights(&place, 2_500);
    let gate = ImportProxy::before(&place);
    let files = ["--refused", "refused.ndjson", "--missing", "missing"];

    gate.close();
    let expected = [
        "1000 lines are imported: run the same command again to resume after them",
        "the gate is closed",
    ];
    import(&place, &gate.url, &files, &expected);
    assert!(place.directory.join("flights.ndjson.progress").exists());

    gate.open();
    let expected = [
        "flights.ndjson: resuming after line 1000",
        "2500 lines in",
        "2 lines: unresolved_reference, origin in airports: 2 of them do not exist",
        "2 lines were refused",
    ];
    import(&place, &gate.url, &files, &expected);
    assert!(!place.directory.join("flights.ndjson.progress").exists());
    let missing = "{\"faa\":\"LAX\"}\n{\"faa\":\"SFO\"}\n";
    assert_eq!(read(&place, "missing/airports.ndjson"), missing);
    let refused = read(&place, "refused.ndjson");
    let refused = refused.lines().map(|line| {
        let told: Value = serde_json::from_str(line).unwrap();
        (told["line"].clone(), told["document"]["origin"].clone())
    });
    let expected = [(json!(10), json!("LAX")), (json!(1_500), json!("SFO"))];
    assert_eq!(refused.collect::<Vec<_>>(), expected);
    server.stop(Signal::INT);
}

#[test]
fn an_import_does_not_go_on_where_another_was() {
    let (_external, place, server) = beside("documents-imports-other");
    let door = DocumentsClient::of(&place);
    declare(&door);
    let made = door.post("documents/airports", &json!({"faa": "JFK"}));
    assert_eq!(made.status, 201);
    write_flights(&place, 2_500);
    let gate = ImportProxy::before(&place);
    let broken_off = || {
        gate.close();
        import(&place, &gate.url, &[], &["1000 lines are imported"]);
        gate.open();
    };

    broken_off();
    let direct = format!("http://127.0.0.1:{}", place.ports[0]);
    let other = format!(
        "flights.ndjson: an import to {} was interrupted: starting at the first line",
        gate.url
    );
    import(&place, &direct, &[], &[&other, "2500 lines in"]);

    broken_off();
    let other = "an import without --database was interrupted: starting at the first line";
    let named = ["--database", "postgres"];
    import(&place, &gate.url, &named, &[other, "2500 lines in"]);

    broken_off();
    write_flights(&place, 2_501);
    let other = "the file has changed since its import was interrupted: starting at the first line";
    import(&place, &gate.url, &[], &[other, "2501 lines in"]);

    // The tenth line was refused, and is in no file.
    broken_off();
    let other =
        "the file --refused lacks lines that were refused before: starting at the first line";
    let file = ["--refused", "refused.ndjson"];
    import(&place, &gate.url, &file, &[other, "2501 lines in"]);
    assert_eq!(read(&place, "refused.ndjson").lines().count(), 2);

    broken_off();
    let told = import(&place, &gate.url, &["--anew"], &["2501 lines in"]);
    assert!(!told.contains("resuming"), "{told}");

    std::fs::write(place.directory.join("flights.ndjson.progress"), "mine").unwrap();
    let arguments = [&FLIGHTS[..], &["--url", &gate.url]].concat();
    let expected = ["is not the progress file of an import", "--anew"];
    check(&place, 2, "", &arguments, &expected);
    assert_eq!(read(&place, "flights.ndjson.progress"), "mine");
    server.stop(Signal::INT);
}

#[test]
fn a_server_that_was_away_is_waited_for() {
    let (_external, place, server) = beside("documents-imports-away");
    let door = DocumentsClient::of(&place);
    declare(&door);
    write_airports(&place, 1_500);
    let gate = ImportProxy::before(&place);
    let import = ["document", "import", "airports", "airports.ndjson", "--url"];
    let import = [&import[..], &[gate.url.as_str()]].concat();

    gate.refuse("\"A1200\"", StatusCode::SERVICE_UNAVAILABLE, 1);
    let expected =
        ["the gate is closed: retrying", "1500 documents are new", ", 0 lines were refused"];
    check(&place, 0, "", &import, &expected);

    // What waits for no disk may be lost then.
    gate.refuse("\"A1200\"", StatusCode::SERVICE_UNAVAILABLE, 1);
    let relaxed = [&import[..], &["--relaxed"]].concat();
    let expected = ["1500 unchanged", "may have lost lines that were sent with --relaxed before"];
    check(&place, 1, "", &relaxed, &expected);
    check(&place, 0, "", &relaxed, &["1500 unchanged"]);
    server.stop(Signal::INT);
}

#[test]
fn more_lines_are_taken_than_one_tenant_may_have_waiting() {
    let external = crate::server::PostgresServer::start();
    let mut place = Place::new("documents-imports-waits");
    place.variables.push(("EGRET_POSTGRES_URL", external.url()));
    let waiting_max = ("EGRET_DOCUMENTS_WAITING_MAX", "100".to_owned());
    place.variables.push(waiting_max);
    let server = place.start(&["serve"]);
    declare(&DocumentsClient::of(&place));
    write_airports(&place, 300);
    let import = ["document", "import", "airports", "airports.ndjson"];
    let expected = ["300 documents are new", ", 0 lines were refused"];
    check(&place, 0, "", &import, &expected);
    server.stop(Signal::INT);
}

#[test]
fn lines_are_taken_though_postgresql_was_killed() {
    const LINES: usize = 30_000;
    let place = Place::new("documents-imports-killed");
    let server = place.start(&["serve"]);
    let door = DocumentsClient::of(&place);
    declare(&door);
    write_airports(&place, LINES);
    let import = ["document", "import", "airports", "airports.ndjson"];
    let child =
        place.command(&import).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let position = || door.get("document-changes").json()["position"].as_i64();
    eventually_blocking("2,000 lines are written", || position().unwrap_or(0) >= 2_000);
    place.kill_source();
    let output = child.wait_with_output().unwrap();
    let told = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{told}");
    for expected in [format!("{LINES} lines in"), ", 0 lines were refused".to_owned()] {
        assert!(told.contains(&expected), "{told}");
    }
    let exported = eventually_blocking("documents are exported", || {
        let answer = door.get("collections/airports/export");
        if answer.status == 200 { Ok(answer.body) } else { Err(answer.body) }
    });
    assert_eq!(exported.lines().count(), LINES);
    server.stop(Signal::TERM);
}
