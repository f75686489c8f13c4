//! Documents with the whole program beside an external server, over HTTP and by commands.

mod crash;
mod described;
mod flights;
mod imports;
mod refused;

use std::io::Write;
use std::process::Stdio;

use reqwest::header::{self, HeaderMap, HeaderName};
use reqwest::{Client, Method, RequestBuilder};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::place::{Place, Server, text};

const COLLECTIONS: &str = r#"{"collections": [
    {"collection": "airports", "identity": ["/faa"], "query": ["/name"],
        "schema": {"type": "object", "properties": {"faa": {"type": "string"}, "name": {"type": "string"}}, "required": ["faa"]}},
    {"collection": "flights", "identity": ["/number"], "query": ["/origin", "/delay"],
        "references": [{"name": "origin", "to": "airports", "paths": {"/origin": "/faa"}}],
        "schema": {"type": "object", "properties": {"number": {"type": "integer"}, "origin": {"type": "string"}, "delay": {"type": "integer"}},
            "required": ["number", "origin"]}}]}"#;

struct DocumentsClient {
    runtime: Runtime,
    http: Client,
    url: String,
    token: String,
}

/// An answer, read to its end.
struct HttpAnswer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl HttpAnswer {
    fn header(&self, name: HeaderName) -> String {
        self.headers[name].to_str().unwrap().to_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn etag(&self) -> String {
        self.header(header::ETAG)
    }

    fn id(&self) -> String {
        self.json()["id"].as_str().unwrap().to_owned()
    }

    /// Of a request that is refused: its status and its problem.
    fn problem(self) -> (u16, Value) {
        assert_eq!(self.header(header::CONTENT_TYPE), "application/problem+json");
        (self.status, self.json())
    }
}

impl DocumentsClient {
    fn of(place: &Place) -> Self {
        // Another test may have done so.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let token = std::fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
        Self {
            runtime: Runtime::new().unwrap(),
            http: Client::builder().no_proxy().build().unwrap(),
            url: format!("http://127.0.0.1:{}/v1", place.ports[0]),
            token: token.trim().to_owned(),
        }
    }

    fn send(&self, request: RequestBuilder) -> HttpAnswer {
        self.runtime.block_on(async {
            let response = request.bearer_auth(&self.token).send().await.unwrap();
            HttpAnswer {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body: response.text().await.unwrap(),
            }
        })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}/{path}", self.url))
    }

    fn post(&self, path: &str, body: &Value) -> HttpAnswer {
        self.send(self.request(Method::POST, path).json(body))
    }

    fn get(&self, path: &str) -> HttpAnswer {
        self.send(self.request(Method::GET, path))
    }
}

fn beside(purpose: &str) -> (crate::server::PostgresServer, Place, Server) {
    let external = crate::server::PostgresServer::start();
    let mut place = Place::new(purpose);
    place.variables.push(("EGRET_POSTGRES_URL", external.url()));
    let server = place.start(&["serve"]);
    (external, place, server)
}

#[test]
fn documents_are_written_and_read_as_http_has_it() {
    let (_external, place, server) = beside("documents");
    let door = DocumentsClient::of(&place);
    let collections: Value = serde_json::from_str(COLLECTIONS).unwrap();
    let (status, problem) = door.get("documents/airports").problem();
    assert_eq!((status, &problem["code"]), (404, &json!("collection_not_found")));
    assert_eq!(door.post("collections", &collections).status, 200);

    let made = door.post("documents/airports", &json!({"faa": "JFK"}));
    assert_eq!(made.status, 201);
    let (at, first) = (made.header(header::LOCATION), made.etag());
    let jfk = made.id();
    assert_eq!(at, format!("/v1/documents/airports/{jfk}"));
    assert_eq!(door.post("documents/airports", &json!({"faa": "JFK"})).status, 200);
    changed_under_conditions(&door, &jfk, &first);
    let own = format!("documents/airports/{jfk}");
    let flight = refused_with_reasons(&door, &own);
    looked_for(&door, &jfk, &flight);
    batched(&door);
    server.stop(Signal::INT);
}

fn changed_under_conditions(door: &DocumentsClient, jfk: &str, first: &str) {
    let own = format!("documents/airports/{jfk}");
    let read = door.get(&own);
    assert_eq!((read.status, read.etag().as_str()), (200, first));
    assert_eq!(read.json(), json!({"faa": "JFK"}));
    let known = door.request(Method::GET, &own).header(header::IF_NONE_MATCH, first);
    assert_eq!(door.send(known).status, 304);

    let put = |tag: &str, body: Value| {
        let request = door.request(Method::PUT, &own).header(header::IF_MATCH, tag);
        door.send(request.json(&body))
    };
    let changed = put(first, json!({"faa": "JFK", "name": "Kennedy"}));
    assert_eq!(changed.status, 204);
    assert_ne!(changed.etag(), first);
    let (status, problem) = put(first, json!({"faa": "JFK"})).problem();
    assert_eq!(
        (status, &problem["code"], &problem["etag"]),
        (412, &json!("version_mismatch"), &json!(changed.etag()))
    );
    let weak = format!("W/{}", changed.etag());
    assert_eq!(put(&weak, json!({"faa": "JFK"})).problem().0, 412);
    let (status, problem) = put(&changed.etag(), json!({"faa": "LAX"})).problem();
    assert_eq!((status, &problem["code"]), (400, &json!("identity_immutable")));

    let patch = |kind: &str, body: &str| {
        let request = door.request(Method::PATCH, &own).header(header::CONTENT_TYPE, kind);
        door.send(request.body(body.to_owned()))
    };
    assert_eq!(patch("application/merge-patch+json", r#"{"name": "New York"}"#).status, 204);
    let replace = r#"[{"op": "test", "path": "/name", "value": "New York"}, {"op": "remove", "path": "/name"}]"#;
    assert_eq!(patch("application/json-patch+json", replace).status, 204);
    let (status, problem) = patch("application/json-patch+json", replace).problem();
    assert_eq!((status, &problem["violations"][0]["pointer"]), (400, &json!("/0")));
    assert_eq!(patch("application/json", "{}").problem().0, 415);
}

/// Writes a flight, after some that are refused, so that the airport cannot go. Returns its id.
fn refused_with_reasons(door: &DocumentsClient, own: &str) -> String {
    let (status, problem) =
        door.post("documents/flights", &json!({"number": "1", "origin": 7})).problem();
    assert_eq!((status, problem["violations"].as_array().unwrap().len()), (400, 2));
    let (status, problem) =
        door.post("documents/flights", &json!({"number": 1, "origin": "LAX"})).problem();
    assert_eq!((status, &problem["code"]), (409, &json!("unresolved_reference")));
    let missing = json!([{"reference": "origin", "to": "airports", "pointers": ["/origin"], "identity": {"/faa": "LAX"}}]);
    assert_eq!(problem["references"], missing);
    let flight =
        door.post("documents/flights", &json!({"number": 1, "origin": "JFK", "delay": 7})).id();
    let (status, problem) = door.send(door.request(Method::DELETE, own)).problem();
    assert_eq!((status, &problem["code"]), (409, &json!("still_referenced")));
    assert_eq!(
        problem["referrers"],
        json!({"count": 1, "is_more": false, "first": [{"collection": "flights", "id": flight}]})
    );
    flight
}

fn looked_for(door: &DocumentsClient, jfk: &str, flight: &str) {
    let page: Value = door
        .get(
            "documents/flights?filter=/delay%20%3E%205&filter=/origin=JFK&count=exact&embed=origin",
        )
        .json();
    assert_eq!((&page["count"], &page["items"][0]["id"]), (&json!(1), &json!(flight)));
    assert_eq!(page["items"][0]["embedded"], json!({"origin": {"faa": "JFK"}}));
    let (status, problem) = door.get("documents/flights?filter=/carrier=B6").problem();
    assert_eq!((status, &problem["code"]), (400, &json!("query_invalid")));
    assert_eq!(door.get("documents/flights?filtr=/origin=JFK").problem().0, 400);
    let meta: Value = door.get(&format!("documents/flights/{flight}?meta=true")).json();
    assert_eq!((&meta["version"], &meta["document"]["delay"]), (&json!(1), &json!(7)));
    assert!(meta["created_by"].is_string() && meta["request_id"].is_string(), "{meta}");
    let fields: Value = door.get(&format!("documents/flights/{flight}?fields=/delay,/none")).json();
    assert_eq!(fields, json!({"delay": 7}));
    let referrers: Value = door.get(&format!("documents/airports/{jfk}/referrers")).json();
    assert_eq!(
        (&referrers["items"][0]["collection"], &referrers["items"][0]["id"]),
        (&json!("flights"), &json!(flight))
    );
    let changes: Value = door.get("document-changes?after=0&collection=flights").json();
    assert_eq!(changes["items"][0]["id"], json!(flight));
    assert_eq!(door.get("document-changes?collection=planes").problem().0, 404);
    let described: Value = door.get("collections/openapi.json").json();
    assert_eq!(described["openapi"], "3.1.0");
    assert!(described["paths"]["/v1/documents/flights/{id}"]["patch"].is_object());
    assert!(described["components"]["schemas"]["Problem"].is_object());
}

fn batched(door: &DocumentsClient) {
    let operations = json!([
        {"op": "upsert", "collection": "flights", "document": {"number": 2, "origin": "LAX"}},
        {"op": "upsert", "collection": "airports", "document": {"faa": "LAX"}},
    ]);
    let (status, problem) =
        door.post("batch", &json!({"atomic": true, "operations": [operations[0]]})).problem();
    assert_eq!((status, &problem["operation"]), (409, &json!(0)));
    let done: Value = door.post("batch", &json!({"atomic": true, "operations": operations})).json();
    assert_eq!(
        (&done["items"][0]["status"], &done["items"][1]["status"]),
        (&json!(201), &json!(201))
    );
    let lax = done["items"][1]["id"].clone();
    let each = json!({"operations": [
        {"op": "delete", "collection": "airports", "id": lax},
        {"op": "delete", "collection": "flights", "id": done["items"][0]["id"]},
        {"op": "delete", "collection": "airports", "id": lax, "if_match": "\"1-00000000\""},
        {"op": "delete", "collection": "airports", "id": lax},
    ]});
    let done: Value = door.post("batch", &each).json();
    let statuses: Vec<&Value> =
        done["items"].as_array().unwrap().iter().map(|one| &one["status"]).collect();
    assert_eq!(statuses, [409, 204, 412, 204]);
    assert_eq!(done["items"][0]["problem"]["code"], "still_referenced");
    let (status, problem) = door
        .post("batch", &json!({"operations": [{"op": "put", "collection": "airports"}]}))
        .problem();
    assert_eq!(
        (status, problem["detail"].as_str().unwrap().contains("operations[0]")),
        (400, true)
    );
}

/// Exit code and output.
fn said(place: &Place, input: &str, arguments: &[&str]) -> (i32, String) {
    let mut child = place
        .command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let all = text(&output.stdout) + &text(&output.stderr);
    (output.status.code().unwrap(), all)
}

/// Runs a command and checks its exit code, and that its output holds all of these texts.
fn check(place: &Place, code: i32, input: &str, arguments: &[&str], expected: &[&str]) -> String {
    let (found, all) = said(place, input, arguments);
    assert_eq!(found, code, "{arguments:?}: {all}");
    for expected in expected {
        assert!(all.contains(expected), "{arguments:?}: {all}");
    }
    all
}

#[test]
fn documents_are_kept_by_commands() {
    let (_external, place, server) = beside("documents-cli");
    let done = |input: &str, arguments: &[&str], expected: &[&str]| {
        check(&place, 0, input, arguments, expected)
    };
    let apply = ["collection", "apply", "-"];
    done(COLLECTIONS, &apply, &["collection airports is created", "collection flights is created"]);
    done(COLLECTIONS, &apply, &["collection flights is unchanged"]);
    done("", &["collection", "list"], &["airports", "flights"]);
    done("", &["collection", "show", "flights"], &["\"identity\""]);
    let made =
        done(r#"{"faa": "JFK"}"#, &["document", "put", "airports"], &["is created, version \"1-"]);
    let jfk = made.split(' ').nth(1).unwrap();
    done("", &["status"], &["written by this Egret"]);
    refused_commands(&place);
    let query =
        ["document", "query", "flights", "/delay < 0", "--sort", "-/delay", "--count", "exact"];
    done("", &query, &["\"delay\": -7", "1 in all"]);
    done("", &["document", "referrers", "airports", jfk], &["flights ", "\"number\": 1"]);
    let delete = ["document", "delete", "airports", jfk];
    check(&place, 1, "", &delete, &["a document refers to it", "flights "]);
    done(
        r#"{"name": "Kennedy"}"#,
        &["document", "patch", "airports", jfk],
        &["is changed, version \"2-"],
    );
    done("", &["document", "get", "airports", jfk, "--meta"], &["\"version\":2", "Kennedy"]);
    done(r#"{"faa": "JFK"}"#, &["document", "put", "airports", "--id", jfk], &["is stored"]);
    followed(&place);
    done("", &["status"], &["documents  ready"]);
    server.stop(Signal::INT);
}

fn refused_commands(place: &Place) {
    let refused = |input: &str, arguments: &[&str], expected: &[&str]| {
        check(place, 1, input, arguments, expected)
    };
    let flights = ["document", "put", "flights"];
    refused(
        r#"{"faa": "JFK"}"#,
        &["document", "put", "airports", "--new"],
        &["the document is at version"],
    );
    refused(r#"{"number": "x", "origin": 1}"#, &flights, &["/number: must be", "/origin: must be"]);
    refused(
        r#"{"number": 1, "origin": "LAX"}"#,
        &flights,
        &["`airports` has no document with /faa \"LAX\""],
    );
    check(place, 0, r#"{"number": 1, "origin": "JFK", "delay": -7}"#, &flights, &["is created"]);
    refused(
        "",
        &["document", "query", "flights", "/number = 1"],
        &["it declares: `/origin`, `/delay`"],
    );
}

fn followed(place: &Place) {
    let done = |arguments: &[&str], expected: &[&str]| check(place, 0, "", arguments, expected);
    let tail = ["document", "tail", "--after", "0", "--limit", "3"];
    done(&tail, &["1  create airports", "2  create flights", "3  update airports"]);
    let of_flights =
        ["document", "tail", "--after", "0", "--limit", "1", "--collection", "flights"];
    done(&of_flights, &["2  create flights"]);
}
