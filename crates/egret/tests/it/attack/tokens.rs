//! Tokens: narrow scopes, tenants, and what a revoked or expired token still holds.

use egret_base_test::eventually;
use egret_proto::queue::v1;
use egret_proto::queue::v1::queue_client::QueueClient;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Request};

use crate::place::{Place, Server};

/// Longer than anything that works takes.
pub(super) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

pub(super) async fn soon<T>(coming: impl Future<Output = T>) -> T {
    let coming = tokio::time::timeout(PATIENCE, coming).await;
    coming.expect("it comes within a minute")
}

/// A running Egret and an HTTP client.
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) server: Server,
    http: reqwest::Client,
    pub(super) admin: String,
}

impl Target {
    pub(super) fn start(purpose: &str) -> Self {
        let place = Place::new(purpose);
        let server = place.start(&["serve"]);
        let admin = std::fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
        // Every test may be the first; the second one finds it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { place, server, http, admin: admin.trim().to_owned() }
    }

    pub(super) fn request(
        &self,
        token: &str,
        method: Method,
        path: &str,
    ) -> reqwest::RequestBuilder {
        let url = format!("http://127.0.0.1:{}{path}", self.place.ports[0]);
        self.http.request(method, url).bearer_auth(token)
    }

    /// The status and the answer.
    pub(super) async fn ask(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Value,
    ) -> (u16, Value) {
        let request = self.request(token, method, path);
        let request = match body {
            Value::Null => request,
            body => request.json(&body),
        };
        let response = soon(request.send()).await.unwrap();
        let status = response.status().as_u16();
        let text = soon(response.text()).await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// A new token by the command line: its id and its text.
    pub(super) fn token(&self, name: &str, arguments: &[&str]) -> (String, String) {
        let command = [&["token", "create", name], arguments].concat();
        let made = self.place.json(&command);
        let text = |field: &str| made[field].as_str().unwrap().to_owned();
        (text("id"), text("token"))
    }

    async fn queues(&self) -> QueueClient<Channel> {
        let url = format!("http://127.0.0.1:{}", self.place.ports[0]);
        let endpoint = Channel::from_shared(url).unwrap();
        QueueClient::new(soon(endpoint.connect()).await.unwrap())
    }
}

fn bearing<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_or_expired_token_ends_its_streams() {
    let target = Target::start("token-end");
    let admin = &target.admin;
    let (status, _) = target.ask(admin, Method::PUT, "/v1/queues/q", json!({})).await;
    assert_eq!(status, 201);
    for end in ["revoked", "expired"] {
        let ttl: &[&str] = if end == "expired" { &["--ttl", "5s"] } else { &[] };
        let scopes = ["--scope", "queue:*"];
        let (id, token) = target.token(end, &[&scopes, ttl].concat());
        let (_, made) = target.ask(admin, Method::POST, "/v1/queues/q/tasks", json!({})).await;
        let mut client = target.queues().await;
        let hello = v1::WorkRequest {
            hello: Some(v1::Hello {
                queues: vec!["q".to_owned()],
                worker: "w".to_owned(),
                lease_ms: 1_000,
            }),
            credits: 1,
            ..v1::WorkRequest::default()
        };
        let (out, messages) = tokio::sync::mpsc::unbounded_channel();
        out.send(hello).unwrap();
        let messages = futures_util::stream::unfold(messages, |mut messages| async move {
            let next = messages.recv().await?;
            Some((next, messages))
        });
        let mut work = soon(client.work(bearing(&token, messages))).await.unwrap().into_inner();
        let mut events = target.request(&token, Method::GET, "/v1/tasks/events");
        events = events.header("accept", "text/event-stream");
        let mut events = soon(events.send()).await.unwrap();
        assert!(soon(events.chunk()).await.unwrap().is_some());
        if end == "revoked" {
            target.place.run(&["token", "revoke", &id]);
        }
        let status = loop {
            match soon(work.message()).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended as if the worker had finished"),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
        while soon(events.chunk()).await.unwrap().is_some() {}
        // The task that the stream held is handed to another worker when its lease ends.
        let wait = json!({"wait_ms": 30_000});
        let (_, claimed) = target.ask(admin, Method::POST, "/v1/queues/q/claim", wait).await;
        assert_eq!(claimed["items"][0]["id"], made["id"], "{end}: {claimed}");
        let done = json!({"lease": claimed["items"][0]["lease"]});
        let path = format!("/v1/tasks/{}/complete", made["id"].as_str().unwrap());
        let (status, _) = target.ask(admin, Method::POST, &path, done).await;
        assert_eq!(status, 204);
    }
    target.server.stop(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_narrow_token_causes_nothing_beyond_its_scopes() {
    let target = Target::start("token-scopes");
    let admin = &target.admin;
    for queue in ["orders", "other"] {
        let path = format!("/v1/queues/{queue}");
        target.ask(admin, Method::PUT, &path, json!({})).await;
    }
    target.ask(admin, Method::POST, "/v1/queues/other/tasks", json!({"payload": "secret"})).await;
    let (_, producer) = target.token("producer", &["--scope", "queue/orders:produce"]);
    let refusals = [
        (Method::POST, "/v1/queues/other/claim"),
        (Method::POST, "/v1/queues/orders/claim"),
        (Method::GET, "/v1/callback-key"),
        (Method::POST, "/v1/queues/other/purge"),
        (Method::POST, "/v1/queues/orders/purge"),
        (Method::DELETE, "/v1/queues/orders?force=true"),
        (Method::POST, "/v1/queues/other/tasks"),
        (Method::POST, "/v1/queues/nowhere/tasks"),
    ];
    for (method, path) in refusals {
        let (status, answer) = target.ask(&producer, method, path, json!({})).await;
        assert_eq!((status, &answer["code"]), (403, &json!("scope_missing")), "{path}");
    }
    let (status, _) =
        target.ask(&producer, Method::POST, "/v1/queues/orders/tasks", json!({})).await;
    assert_eq!(status, 201);
    target.server.stop(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_of_a_tenant_reaches_nothing_of_the_host() {
    let target = Target::start("token-tenant");
    let (_, acme) = target.token("acme", &["--scope", "admin", "--tenant", "acme"]);
    for (method, path) in [
        (Method::GET, "/v1/volume"),
        (Method::POST, "/v1/verify"),
        (Method::GET, "/v1/installations"),
        (Method::DELETE, "/v1/installations/postgres?force=true"),
        (Method::GET, "/v1/outboxes"),
        (Method::GET, "/debug/profile?seconds=1"),
        (Method::POST, "/prometheus/-/reload"),
        (Method::POST, "/v1/document-checks"),
        (Method::GET, "/metrics"),
        (Method::GET, "/v1/status"),
        (Method::GET, "/v1/views"),
    ] {
        let (status, answer) = target.ask(&acme, method, path, Value::Null).await;
        assert_eq!(status, 403, "{path}: {answer}");
    }
    let (_, tokens) = target.ask(&acme, Method::GET, "/v1/tokens", Value::Null).await;
    assert_eq!(tokens["items"].as_array().unwrap().len(), 1, "{tokens}");
    let escalation = json!({"name": "x", "scopes": ["admin"], "tenant": "default"});
    let (status, _) = target.ask(&acme, Method::POST, "/v1/tokens", escalation).await;
    assert_eq!(status, 403);
    target.server.stop(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_and_refusals_are_in_the_audit_log() {
    let target = Target::start("audit");
    let admin = &target.admin;
    let (id, producer) = target.token("producer", &["--scope", "queue/orders:produce"]);
    let (acme_id, acme) = target.token("acme", &["--scope", "admin", "--tenant", "acme"]);
    for (token, status) in [(admin, 201), (&producer, 403), (&acme, 201)] {
        let put = target.ask(token, Method::PUT, "/v1/queues/orders", json!({})).await;
        assert_eq!(put.0, status);
    }
    target.ask("nonsense", Method::GET, "/v1/callback-key", Value::Null).await;
    let url = format!("http://127.0.0.1:{}", target.place.ports[0]);
    let endpoint = Channel::from_shared(url).unwrap();
    let mut client = QueueClient::new(soon(endpoint.connect()).await.unwrap());
    let purge =
        v1::PurgeQueueRequest { name: "orders".to_owned(), ..v1::PurgeQueueRequest::default() };
    let refused = soon(client.purge_queue(bearing(&producer, purge))).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let entries = target.place.json(&["audit", "--since", "1h"]);
    let entries = entries["items"].as_array().unwrap();
    let found: Vec<Value> = entries
        .iter()
        .map(|entry| json!([entry["operation"], entry["object"], entry["token"], entry["status"]]))
        .collect();
    let operator = &entries.last().unwrap()["token"];
    let expected = [
        json!(["PurgeQueue", null, id, 403]),
        json!(["getCallbackKey", null, null, 401]),
        json!(["putQueue", "orders", acme_id, 201]),
        json!(["putQueue", "orders", id, 403]),
        json!(["putQueue", "orders", operator, 201]),
        json!(["createToken", acme_id, operator, 201]),
        json!(["createToken", id, operator, 201]),
    ];
    assert_eq!(found, expected);
    assert!(entries.iter().all(|entry| entry["address"] == "127.0.0.1"));
    let (_, own) = target.ask(&acme, Method::GET, "/v1/audit", Value::Null).await;
    assert_eq!(own["items"].as_array().unwrap().len(), 1, "{own}");
    let (status, _) = target.ask(&producer, Method::GET, "/v1/audit", Value::Null).await;
    assert_eq!(status, 403);
    let file = target.place.data_dir().join("audit/audit.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    for token in [admin, &producer, &acme] {
        // `egret_<id>_<secret>`, whose secret may contain `_` itself.
        assert!(!text.contains(token.splitn(3, '_').last().unwrap()));
    }
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    target.server.stop(Signal::TERM);
}

/// The entries that a token sees of sessions, which are made with a password and no token.
async fn sessions(target: &Target, token: &str) -> Vec<Value> {
    let asked = target.ask(token, Method::GET, "/v1/audit", Value::Null);
    let (_, answer) = asked.await;
    let entries = answer["items"].as_array().unwrap().clone();
    let is_of_session = |entry: &Value| entry["token"].is_null();
    entries.into_iter().filter(is_of_session).collect()
}

/// What an entry of a session says.
fn session_entry(entry: &Value) -> Value {
    let fields = ["operation", "object", "role", "status", "reason"];
    fields.map(|field| entry[field].clone()).into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_through_the_proxy_are_in_the_audit_log() {
    let target = Target::start("audit-sessions");
    let place = &target.place;
    place.json(&["branch", "create", "pr-42"]);
    let url = place.connection_string("pr-42", "postgres");
    let (scheme, rest) = url.split_once("://").unwrap();
    let (credentials, host) = rest.split_once('@').unwrap();
    let (role, password) = credentials.split_once(':').unwrap();
    assert_eq!(place.psql(&url, "SELECT 42").unwrap(), "42");
    let absent = host.replace("pr-42", "pr-43");
    for guess in [
        format!("{scheme}://{role}:wrong@{host}"),
        format!("{scheme}://{role}:{password}@{absent}"),
        format!("{scheme}://nobody%1B%5B2J:wrong@{host}"),
    ] {
        place.psql(&guess, "SELECT 42").unwrap_err();
    }
    // The end of a session is recorded once the proxy has seen it.
    let entries = eventually("five sessions are recorded", async || {
        let entries = sessions(&target, &target.admin).await;
        if entries.len() == 5 { Ok(entries) } else { Err(entries) }
    })
    .await;
    let found: Vec<Value> = entries.iter().map(session_entry).collect();
    let open = "openBranchSession";
    for expected in [
        json!([open, "pr-42", role, 200, null]),
        json!(["endBranchSession", "pr-42", role, 200, "finished"]),
        json!([open, "pr-42", role, 401, "password"]),
        json!([open, "pr-43", role, 401, "password"]),
        json!([open, "pr-42", "nobody\u{1b}[2J", 401, "password"]),
    ] {
        assert!(found.contains(&expected), "{expected}: {found:?}");
    }
    for entry in &entries {
        assert_eq!(entry["address"], "127.0.0.1");
        assert_eq!(entry["tenant"], "default");
        assert_eq!(entry["database"], "postgres");
    }
    let listed = place.run(&["audit", "--operation", open]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("pr-43"), "{listed:?}");
    assert!(!listed.contains("\u{1b}[2J"), "{listed:?}");
    // Another tenant sees nothing of it.
    let (_, acme) = target.token("acme", &["--scope", "admin", "--tenant", "acme"]);
    assert_eq!(sessions(&target, &acme).await, Vec::<Value>::new());
    let file = place.data_dir().join("audit/audit.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(password), "{text}");
    target.server.stop(Signal::TERM);
}
