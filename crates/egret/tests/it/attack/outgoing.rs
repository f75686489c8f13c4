//! Requests that a token's holder makes Egret send: none reaches what only this machine can reach,
//! and what is secret of a destination is not shown.

use std::net::TcpListener;

use egret_base_test::eventually_blocking;
use reqwest::{Client, Method};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::place::Place;

const SECRET: &str = "TOPSECRET";

/// A client of the API with the admin token.
struct AdminClient {
    runtime: Runtime,
    http: Client,
    url: String,
    token: String,
}

impl AdminClient {
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

    fn send(&self, method: Method, path: &str, body: &Value) -> (u16, String) {
        let request = self
            .http
            .request(method, format!("{}/{path}", self.url))
            .bearer_auth(&self.token)
            .json(body);
        self.runtime.block_on(async {
            let answer = request.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        })
    }

    /// Something to subscribe to.
    fn declare(&self) {
        let collections = json!({"collections": [
            {"collection": "notes", "identity": ["/n"],
                "schema": {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}}]});
        let (status, body) = self.send(Method::POST, "collections", &collections);
        assert_eq!(status, 200, "{body}");
    }

    fn subscribe(&self, url: &str) -> (u16, String) {
        let body = json!({"webhook": url, "after": 0});
        self.send(Method::PUT, "document-subscriptions/hook", &body)
    }
}

#[test]
fn tokens_name_no_address_of_this_machine() {
    let place = Place::new("ssrf");
    let server = place.start(&["serve"]);
    let door = AdminClient::of(&place);
    door.declare();
    assert!(place.run(&["queue", "create", "mail"]).status.success());
    for url in [
        "http://127.0.0.1:7433/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/",
        "http://100.64.0.1/",
        "file:///etc/passwd",
    ] {
        let (status, body) = door.subscribe(url);
        assert!(status == 400 && body.contains("webhook"), "{url}: {status} {body}");
        let task = ["queue", "enqueue", "mail", "1", "--callback-url", url];
        let enqueued = place.run(&task);
        assert!(!enqueued.status.success(), "{url}");
    }
    server.stop(Signal::TERM);
}

#[test]
fn secrets_of_a_webhook_are_not_shown() {
    let mut place = Place::new("webhook-secrets");
    place.variables = vec![
        ("EGRET_LOG_LEVEL", "trace".to_owned()),
        ("EGRET_OUTGOING_ALLOW", "127.0.0.1".to_owned()),
    ];
    let server = place.start(&["serve"]);
    let door = AdminClient::of(&place);
    door.declare();
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let url =
        format!("http://me:{SECRET}-password@127.0.0.1:{port}/{SECRET}-path?k={SECRET}-query");
    let (status, body) = door.subscribe(&url);
    assert_eq!(status, 200, "{body}");
    assert!(!body.contains("TOPSECRET-password"), "{body}");
    let note = json!({"n": format!("{SECRET}-document")});
    assert_eq!(door.send(Method::POST, "documents/notes", &note).0, 201);
    // Nothing listens there, so that it fails, is logged and is shown.
    let error = eventually_blocking("the error is shown", || {
        let (_, body) = door.send(Method::GET, "document-subscriptions", &json!({}));
        assert!(!body.contains("TOPSECRET-password"), "{body}");
        let list: Value = serde_json::from_str(&body).unwrap();
        list["items"][0]["last_error"].as_str().map(str::to_owned)
    });
    assert!(!error.contains(SECRET), "{error}");
    let log = place.log();
    let line = log.lines().find(|line| line.contains(SECRET));
    assert_eq!(line, None);
    assert!(!log.contains(&door.token));
    server.stop(Signal::TERM);
}
