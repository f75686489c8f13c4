//! Documents and series: what a token's end takes with it, and what a part of the collections may
//! cause.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use egret_base_test::eventually;
use reqwest::{Method, Response};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::tokens::{Target, soon};

/// Cities, and streets that are told apart by their city.
const CITIES: &str = r#"{"collections": [
    {"collection": "cities", "identity": ["/city"], "identity_mutable": true,
        "schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    {"collection": "streets", "identity": ["/city", "/street"],
        "references": [{"name": "city", "to": "cities", "paths": {"/city": "/city"}}],
        "schema": {"type": "object", "properties": {"city": {"type": "string"}, "street": {"type": "integer"}, "text": {"type": "string"}},
            "required": ["city", "street"]}}
]}"#;

/// Bytes that fit into no buffers of sockets.
const EXPORTED_BYTES: usize = 30 << 20;

async fn declare(target: &Target) {
    let collections: Value = serde_json::from_str(CITIES).unwrap();
    let path = "/v1/collections?database=postgres";
    let (status, answer) = target.ask(&target.admin, Method::POST, path, collections).await;
    assert_eq!(status, 200, "{answer}");
}

async fn import(target: &Target, path: &str, lines: String) {
    let request = target
        .request(&target.admin, Method::POST, path)
        .header("content-type", "application/x-ndjson");
    let response = soon(request.body(lines).send()).await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    assert!(status.is_success(), "{path}: {status} {text}");
}

/// Ends a token, and returns when it is not accepted any more.
async fn end(target: &Target, id: &str, token: &str, how: &str) {
    if how == "revoked" {
        target.place.run(&["token", "revoke", id]);
    }
    eventually("the token is refused", async || {
        let (status, _) = target.ask(token, Method::GET, "/v1/collections", Value::Null).await;
        if status == 401 { Ok(()) } else { Err(status) }
    })
    .await;
}

/// A large answer of which nothing has been read but the beginning.
async fn begin(target: &Target, token: &str, path: &str) -> (Response, usize) {
    let mut response = soon(target.request(token, Method::GET, path).send()).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let first = soon(response.chunk()).await.unwrap().unwrap();
    (response, first.len())
}

/// The answer is broken off, and not taken for complete.
async fn check_broken_off(mut response: Response, mut bytes: usize) {
    loop {
        match soon(response.chunk()).await {
            Ok(Some(chunk)) => bytes += chunk.len(),
            Ok(None) => panic!("{bytes} bytes came as if they were all"),
            Err(_) => break,
        }
    }
    assert!(bytes < EXPORTED_BYTES, "{bytes}");
}

/// An upload of which the end does not come.
async fn upload(target: &Target, token: &str, path: &str, kind: &str) -> TcpStream {
    let address = ("127.0.0.1", target.place.ports[0]);
    let mut stream = soon(TcpStream::connect(address)).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: egret\r\nauthorization: Bearer {token}\r\ncontent-type: {kind}\r\n\
         transfer-encoding: chunked\r\n\r\n1\r\n\n\r\n"
    );
    soon(stream.write_all(head.as_bytes())).await.unwrap();
    stream
}

/// The upload was answered, though its end has not come.
async fn check_refused(mut upload: TcpStream) {
    let mut answer = Vec::new();
    while !answer.starts_with(b"HTTP/1.1 401") {
        let read = soon(upload.read_buf(&mut answer)).await.unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert!(read > 0, "{text}");
        assert!("HTTP/1.1 401".starts_with(&text[..text.len().min(12)]), "{text}");
    }
}

fn lifetime(how: &str) -> &'static [&'static str] {
    match how {
        "expired" => &["--ttl", "5s"],
        _ => &[],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_requests_for_documents_end_with_their_token() {
    let target = Target::start("documents-end");
    declare(&target).await;
    let (status, _) =
        target.ask(&target.admin, Method::POST, "/v1/documents/cities", json!({"city": "c"})).await;
    assert_eq!(status, 201);
    const TEXT_BYTES: usize = 10_000;
    let text = "x".repeat(TEXT_BYTES);
    let count = EXPORTED_BYTES / TEXT_BYTES + 1;
    for first in (0..count).step_by(300) {
        let lines = (first..count.min(first + 300)).map(|street| {
            let street = json!({"city": "c", "street": street, "text": text});
            format!("{street}\n")
        });
        import(&target, "/v1/collections/streets/import", lines.collect()).await;
    }
    for how in ["revoked", "expired"] {
        let scopes = ["--scope", "documents:*"];
        let (id, token) = target.token(how, &[&scopes, lifetime(how)].concat());
        let feed = "/v1/document-changes/events";
        let events = target.request(&token, Method::GET, feed);
        let mut events = soon(events.send()).await.unwrap();
        assert!(soon(events.chunk()).await.unwrap().is_some());
        let (export, begun_bytes) = begin(&target, &token, "/v1/collections/streets/export").await;
        let kind = "application/x-ndjson";
        let upload = upload(&target, &token, "/v1/collections/cities/import", kind).await;
        end(&target, &id, &token, how).await;
        check_refused(upload).await;
        while soon(events.chunk()).await.unwrap().is_some() {}
        check_broken_off(export, begun_bytes).await;
        let (status, _) = target.ask(&token, Method::GET, feed, Value::Null).await;
        assert_eq!(status, 401, "{how}");
    }
    target.server.stop(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_requests_for_series_end_with_their_token() {
    let target = Target::start("series-end");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // A sample is exported with its time of 13 digits and its value of 8.
    const SAMPLE_BYTES: usize = 23;
    const SAMPLES: usize = 10_000;
    let begin_ms = now.as_millis() as usize - SAMPLES * 1_000;
    for series in 0..=EXPORTED_BYTES / (SAMPLE_BYTES * SAMPLES) {
        let mut line =
            format!("{{\"metric\":{{\"__name__\":\"load\",\"n\":\"{series}\"}},\"values\":[");
        for at in 0..SAMPLES {
            let comma = if at == 0 { "" } else { "," };
            write!(line, "{comma}0.{}", 100_001 + (at * 7_919 + series) % 800_000 / 10 * 10)
                .unwrap();
        }
        line.push_str("],\"timestamps\":[");
        for at in 0..SAMPLES {
            let comma = if at == 0 { "" } else { "," };
            write!(line, "{comma}{}", begin_ms + at * 1_000).unwrap();
        }
        line.push_str("]}\n");
        import(&target, "/v1/series/import?format=jsonl", line).await;
    }
    for how in ["revoked", "expired"] {
        let scopes = ["--scope", "series:*"];
        let (id, token) = target.token(how, &[&scopes, lifetime(how)].concat());
        let path = "/v1/series/export?match[]=load";
        let (export, begun_bytes) = begin(&target, &token, path).await;
        let import = "/v1/series/import?format=jsonl";
        let upload = upload(&target, &token, import, "application/x-ndjson").await;
        end(&target, &id, &token, how).await;
        check_refused(upload).await;
        check_broken_off(export, begun_bytes).await;
        let (status, _) = target.ask(&token, Method::GET, path, Value::Null).await;
        assert_eq!(status, 401, "{how}");
    }
    target.server.stop(Signal::TERM);
}

/// Every way to give a city another identity is refused, and so is to delete it.
async fn check_city_stays(target: &Target, token: &str, city: &str, is_named: bool) {
    let path = format!("/v1/documents/cities/{city}");
    let body = json!({"city": "new"});
    for (method, kind) in
        [(Method::PUT, "application/json"), (Method::PATCH, "application/merge-patch+json")]
    {
        let request = target
            .request(token, method, &path)
            .header("content-type", kind)
            .body(body.to_string());
        let response = soon(request.send()).await.unwrap();
        let (status, told) = (response.status(), response.text().await.unwrap());
        assert_eq!(status, 403, "{told}");
        assert!(told.contains("access_denied"), "{told}");
        assert_eq!(told.contains("streets"), is_named, "{told}");
    }
    let operations = json!({"atomic": true, "operations": [
        {"op": "put", "collection": "cities", "id": city, "document": body}]});
    let batch = target.ask(token, Method::POST, "/v1/batch", operations);
    let (status, told) = batch.await;
    assert_eq!((status, &told["code"]), (403, &json!("access_denied")), "{told}");
    // What others refer to does not go, and takes nothing with it.
    let (status, told) = target.ask(token, Method::DELETE, &path, Value::Null).await;
    assert_eq!((status, &told["code"]), (409, &json!("still_referenced")), "{told}");
}

/// A token of one collection changes documents of no other, be it by what follows from another
/// identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_a_collection_changes_no_other_collection() {
    let target = Target::start("documents-parts");
    let admin = &target.admin;
    declare(&target).await;
    let post = async |path: &str, body: Value| {
        let (status, made) = target.ask(admin, Method::POST, path, body).await;
        assert_eq!(status, 201, "{made}");
        made["id"].as_str().unwrap().to_owned()
    };
    let city = post("/v1/documents/cities", json!({"city": "old"})).await;
    let street = post("/v1/documents/streets", json!({"city": "old", "street": 1})).await;
    let street = format!("/v1/documents/streets/{street}");
    let now = async || {
        let (_, found) = target.ask(admin, Method::GET, &street, Value::Null).await;
        found["city"].clone()
    };
    assert_eq!(now().await, "old");
    let own = ["--scope", "documents/cities:*", "--scope"];
    for (other, is_named) in [("queue:read", false), ("documents/streets:read", true)] {
        let (_, token) = target.token("part", &[&own[..], &[other]].concat());
        check_city_stays(&target, &token, &city, is_named).await;
        assert_eq!(now().await, "old");
    }
    let (_, token) = target.token("both", &[&own[..], &["documents/streets:write"]].concat());
    let (path, body) = (format!("/v1/documents/cities/{city}"), json!({"city": "new"}));
    let (status, told) = target.ask(&token, Method::PUT, &path, body).await;
    assert_eq!(status, 204, "{told}");
    assert_eq!(now().await, "new");
    target.server.stop(Signal::TERM);
}
