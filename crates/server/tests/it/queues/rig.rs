//! A server whose queue engine keeps its files in a directory of its own.

use std::sync::Arc;

use egret_base::lifecycle::Service;
use egret_base::{SystemClock, SystemEntropy};
use egret_queue::{DurabilityMode, Options, QueueConfig, Queues};
use egret_server::{TokenRequest, queue_routes, queue_service};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::test_server::{Builder, TestServer, TestServerSetup, problem};

/// A house with queues.
pub struct Rig {
    pub test_server: TestServer,
    pub queues: Queues,
}

impl Rig {
    pub async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// With changed settings of the engine.
    pub async fn with(change: impl FnOnce(&mut QueueConfig)) -> Self {
        Self::with_settings(change, |builder| builder).await
    }

    /// With changed settings of the engine, and another server.
    pub async fn with_settings(
        change: impl FnOnce(&mut QueueConfig),
        build: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let site = TestServerSetup::new();
        let mut config = QueueConfig {
            partitions: 2,
            durability: DurabilityMode::None,
            ..QueueConfig::default()
        };
        change(&mut config);
        let options = Options {
            config,
            directory: site.path("queue"),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            destinations: Default::default(),
        };
        let mut engine = None;
        site.metrics.register(|registry| engine = Some(Queues::new(options, registry)));
        let queues = engine.expect("registering runs its closure");
        queues.start().await.unwrap();
        let doors = queues.clone();
        let test_server = site
            .start(|builder| {
                let stopping = builder.stopping();
                build(builder)
                    .grpc(queue_service(doors.clone(), stopping.clone()))
                    .route(queue_routes(doors, stopping))
            })
            .await;
        Self { test_server, queues }
    }

    /// Asks with the admin token; a body that is not null is sent as JSON.
    pub fn request(&self, method: Method, path: &str, body: Value) -> RequestBuilder {
        let request = self.test_server.request(method, path);
        match body {
            Value::Null => request,
            body => request.json(&body),
        }
    }

    /// Posts and expects this status; the answer as JSON, null where there is none.
    pub async fn post(&self, path: &str, body: Value, status: u16) -> Value {
        expect_status(self.request(Method::POST, path, body), status).await
    }

    pub async fn put(&self, path: &str, body: Value, status: u16) -> Value {
        expect_status(self.request(Method::PUT, path, body), status).await
    }

    pub async fn get(&self, path: &str) -> Value {
        expect_status(self.request(Method::GET, path, Value::Null), 200).await
    }

    pub async fn delete(&self, path: &str, status: u16) {
        expect_status(self.request(Method::DELETE, path, Value::Null), status).await;
    }

    /// The detail of a refusal.
    pub async fn expect_problem(
        &self,
        method: Method,
        path: &str,
        body: Value,
        status: u16,
        code: &str,
    ) -> String {
        let response = self.request(method, path, body).send().await.unwrap();
        let problem = problem(response, status, code).await;
        problem["detail"].as_str().unwrap().to_owned()
    }

    /// A queue with default settings.
    pub async fn create_queue(&self, name: &str) {
        self.put(&format!("/v1/queues/{name}"), Value::Null, 201).await;
    }

    /// The id of a new task.
    pub async fn enqueue(&self, queue: &str, task: Value) -> String {
        let made = self.post(&format!("/v1/queues/{queue}/tasks"), task, 201).await;
        made["id"].as_str().unwrap().to_owned()
    }

    /// A task of a queue that has one ready.
    pub async fn claim(&self, queue: &str) -> Value {
        let asked = json!({"wait_ms": 10_000, "worker": "w1"});
        let claimed = self.post(&format!("/v1/queues/{queue}/claim"), asked, 200).await;
        claimed["items"][0].clone()
    }

    /// Says something about a claimed task.
    pub async fn report(&self, task: &Value, kind: &str, mut more: Value, status: u16) -> Value {
        more["lease"] = task["lease"].clone();
        let id = task["id"].as_str().unwrap();
        self.post(&format!("/v1/tasks/{id}/{kind}"), more, status).await
    }

    pub async fn task(&self, id: &str) -> Value {
        self.get(&format!("/v1/tasks/{id}")).await
    }

    /// The text of a token of a tenant.
    pub fn token(&self, tenant: &str, scopes: &[&str]) -> String {
        let request = TokenRequest {
            name: "test".to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            claims: Default::default(),
            tenant: Some(tenant.to_owned()),
            ttl_ms: None,
        };
        self.test_server.tokens.create(&request).unwrap().token
    }

    pub async fn with_token(&self, token: &str, method: Method, path: &str) -> Response {
        let request = self.test_server.request_without_token(method, path).bearer_auth(token);
        request.json(&json!({})).send().await.unwrap()
    }

    /// Stops everything; nothing unexpected may have been logged.
    pub async fn close(self) {
        self.test_server.stop().await;
        self.queues.stop().await;
    }
}

/// Sends and expects this status; the answer as JSON, null where there is none.
pub async fn expect_status(request: RequestBuilder, status: u16) -> Value {
    let response = request.send().await.unwrap();
    let found = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(found, status, "{text}");
    match text.as_str() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap(),
    }
}
