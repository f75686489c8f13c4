//! Views over HTTP, in a database of each test's own.

mod following;
mod scopes;

use std::sync::Arc;

use egret_base::lifecycle::Service;
use egret_base::{SystemClock, SystemEntropy};
use egret_documents::{Documents, DocumentsConfig, Options as DocumentsOptions};
use egret_postgres::Databases;
use egret_postgres::tokio_postgres::Client;
use egret_postgres_test::TestDatabase;
use egret_queue::{DurabilityMode, Options as QueueOptions, Outbox, QueueConfig, Queues};
use egret_server::{
    DEFAULT_TENANT, TokenRequest, installation_routes, queue_routes, view_routes, view_service,
};
use egret_views::{Options, TaskPublisher, Views, ViewsConfig};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::test_server::{TestServer, TestServerSetup, problem};

/// A house with the views of one database.
struct Rig {
    test_server: TestServer,
    views: Views,
    queues: Queues,
    outbox: Outbox,
    database: TestDatabase,
    client: Client,
}

/// Views of it are made in every test.
const FLIGHTS: &str = "CREATE TABLE flights (id int PRIMARY KEY, carrier text, delay int);
    INSERT INTO flights VALUES (1, 'UA', 10), (2, 'UA', 70), (3, 'DL', 5)";

const BY_CARRIER: &str = "select carrier, count(*) as flights from flights group by carrier";

impl Rig {
    async fn new() -> Self {
        Self::with(ViewsConfig::default()).await
    }

    async fn with(config: ViewsConfig) -> Self {
        let site = TestServerSetup::new();
        let database = TestDatabase::create(18).await;
        let client = database.connect().await;
        client.batch_execute(FLIGHTS).await.unwrap();
        let queue = QueueOptions {
            config: QueueConfig {
                partitions: 1,
                durability: DurabilityMode::None,
                ..QueueConfig::default()
            },
            directory: site.path("queue"),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            destinations: Default::default(),
        };
        let databases = Databases::single(database.connection());
        let mut engines = None;
        site.metrics.register(|registry| {
            let queues = Queues::new(queue, registry);
            let outbox = Outbox::new(queues.clone(), databases.clone(), registry);
            let options = Options {
                config,
                databases: databases.clone(),
                clock: Arc::new(SystemClock),
                task_publisher: Some(TaskPublisher {
                    sink: Arc::new(queues.clone()),
                    tenant: DEFAULT_TENANT.to_owned(),
                }),
            };
            let documents = DocumentsOptions {
                config: DocumentsConfig::default(),
                databases: databases.clone(),
                clock: Arc::new(SystemClock),
                entropy: Arc::new(SystemEntropy),
                tasks: None,
                signer: None,
                destinations: Default::default(),
            };
            let documents = Documents::new(documents, registry);
            engines = Some((queues, outbox, Views::new(options, registry), documents));
        });
        let (queues, outbox, views, documents) = engines.expect("registering runs its closure");
        queues.start().await.unwrap();
        outbox.start().await.unwrap();
        views.start().await.unwrap();
        let removal = installation_routes(databases, views.clone(), outbox.clone(), documents);
        let (of_views, of_queues) = (views.clone(), queues.clone());
        let test_server = site
            .start(|builder| {
                let stopping = builder.stopping();
                let doors = view_routes(of_views.clone(), Arc::new(SystemClock), stopping.clone());
                builder
                    .route(doors)
                    .route(removal)
                    .route(queue_routes(of_queues, stopping.clone()))
                    .grpc(view_service(of_views, stopping))
            })
            .await;
        Self { test_server, views, queues, outbox, database, client }
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Response {
        let request = self.test_server.request(method, path);
        let request = match body {
            Value::Null => request,
            body => request.json(&body),
        };
        request.send().await.unwrap()
    }

    /// Asks and expects this status; the answer as JSON, null where there is none.
    async fn send_expecting(&self, method: Method, path: &str, body: Value, status: u16) -> Value {
        let response = self.send(method, path, body).await;
        let found = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(found, status, "{path}: {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    async fn create_view(&self, name: &str, query: &str) -> Value {
        let body =
            json!({"name": name, "query": query, "schedule": "manual", "mode": "incremental"});
        self.send_expecting(Method::POST, "/v1/views", body, 201).await
    }

    async fn close(self) {
        self.views.stop().await;
        self.outbox.stop().await;
        self.queues.stop().await;
        self.test_server.stop().await;
    }
}

#[tokio::test]
async fn a_view_is_made_refreshed_verified_and_dropped() {
    let rig = Rig::new().await;
    let made = rig.create_view("by_carrier", BY_CARRIER).await;
    assert_eq!(made["name"], "public.by_carrier");
    assert_eq!(made["database"], rig.database.name.as_str());
    assert_eq!(made["query"], BY_CARRIER);
    assert_eq!(made["mode"], "incremental");
    assert_eq!(made["advice"], json!([]));
    assert_eq!(made["schedule"], "manual");
    assert_eq!(made["state"], "active");
    assert_eq!(made["reads"], json!(["public.flights"]));
    let shown =
        "SELECT string_agg(carrier || ' ' || flights, ', ' ORDER BY carrier) FROM by_carrier";
    let read = async || -> String { rig.client.query_one(shown, &[]).await.unwrap().get(0) };
    assert_eq!(read().await, "DL 1, UA 2");

    let more = "INSERT INTO flights VALUES (4, 'DL', 0), (5, 'AA', 1)";
    rig.client.batch_execute(more).await.unwrap();
    let path = "/v1/views/by_carrier";
    let behind = rig.send_expecting(Method::GET, path, Value::Null, 200).await;
    assert_eq!(behind["waiting_changes"], 2, "{behind}");
    let refreshed = format!("{path}/refresh");
    let refreshed = rig.send_expecting(Method::POST, &refreshed, json!({}), 200).await;
    assert_eq!(refreshed["changes"], 2, "{refreshed}");
    assert_eq!(refreshed["added"], 1, "{refreshed}");
    assert_eq!(refreshed["changed"], 1, "{refreshed}");
    assert_eq!(read().await, "AA 1, DL 2, UA 2");
    let verified = "/v1/views/public.by_carrier/verify";
    let verified = rig.send_expecting(Method::POST, verified, Value::Null, 200).await;
    assert_eq!(verified["equal"], true, "{verified}");
    assert_eq!(verified["same"], 3);
    let shown = rig.send_expecting(Method::GET, path, Value::Null, 200).await;
    for phase in ["waiting", "applying", "other", "all"] {
        assert!(shown["durations"][phase]["p95_ms"].is_number(), "{shown}");
    }
    let history = format!("{path}/history?limit=1");
    let history = rig.send_expecting(Method::GET, &history, Value::Null, 200).await;
    assert_eq!(history["items"][0]["snapshot"], refreshed["snapshot"]);
    let explained = format!("{path}/explain");
    let explained = rig.send_expecting(Method::GET, &explained, Value::Null, 200).await;
    assert_eq!(explained["columns"][0], json!({"name": "carrier", "type": "text"}));
    assert!(!explained["stages"].as_array().unwrap().is_empty());

    rig.close().await;
}

#[tokio::test]
async fn a_view_is_changed_repaired_and_dropped() {
    let rig = Rig::new().await;
    rig.create_view("by_carrier", BY_CARRIER).await;
    let path = "/v1/views/by_carrier";
    let change = json!({"mode": "full", "schedule": null, "active": false});
    let changed = rig.send_expecting(Method::PATCH, path, change, 200).await;
    assert_eq!(changed["mode"], "full");
    assert_eq!(changed["schedule"], Value::Null);
    assert_eq!(changed["state"], "suspended");
    let repaired = format!("{path}/repair");
    let repaired = rig.send_expecting(Method::POST, &repaired, Value::Null, 200).await;
    assert_eq!(repaired["state"], "active");

    let listed = rig.send_expecting(Method::GET, "/v1/views", Value::Null, 200).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(listed["items"][0].get("advice"), None);
    rig.send_expecting(Method::DELETE, path, Value::Null, 204).await;
    let listed = rig.send_expecting(Method::GET, "/v1/views", Value::Null, 200).await;
    assert_eq!(listed["items"], json!([]));
    let gone = "SELECT pg_catalog.to_regclass('by_carrier') IS NULL";
    assert!(rig.client.query_one(gone, &[]).await.unwrap().get::<_, bool>(0));
    rig.close().await;
}

#[tokio::test]
async fn refusals_say_what_where_and_what_to_do() {
    let rig = Rig::new().await;
    rig.create_view("by_carrier", BY_CARRIER).await;
    let query = "select id, random() from flights";
    for (path, body) in [
        ("/v1/views", json!({"name": "other", "query": query})),
        ("/v1/view-validations", json!({"query": query})),
    ] {
        let refused = rig.send(Method::POST, path, body).await;
        let refused = problem(refused, 400, "view_unsupported").await;
        assert_eq!(refused["position"], 12, "{refused}");
        let construct = refused["construct"].as_str().unwrap();
        let advice = refused["advice"].as_str().unwrap();
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains(construct) && detail.contains(advice), "{refused}");
    }
    let taken = json!({"name": "public.by_carrier", "query": BY_CARRIER});
    let taken = rig.send(Method::POST, "/v1/views", taken).await;
    problem(taken, 409, "view_exists").await;
    let none = rig.send(Method::GET, "/v1/views/other", Value::Null).await;
    problem(none, 404, "view_not_found").await;
    let elsewhere = "/v1/views/by_carrier?database=elsewhere";
    let elsewhere = rig.send(Method::GET, elsewhere, Value::Null).await;
    problem(elsewhere, 404, "database_not_found").await;
    for (path, place) in [("/v1/views/a.b.c", "path"), ("/v1/views/by_carrier?data=x", "query")] {
        let refused = rig.send(Method::GET, path, Value::Null).await;
        let refused = problem(refused, 400, "parameter_invalid").await;
        assert!(refused["detail"].as_str().unwrap().starts_with(place), "{refused}");
    }
    for (field, value) in [("name", "a.b.c"), ("mode", "quickly"), ("schedule", "often")] {
        let mut body = json!({"name": "other", "query": BY_CARRIER});
        body[field] = json!(value);
        let refused = rig.send(Method::POST, "/v1/views", body).await;
        let refused = problem(refused, 400, "json_invalid").await;
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains(&format!("{field}: `{value}`")), "{detail}");
    }

    let reader =
        json!({"name": "busy", "query": "select carrier from by_carrier where flights > 1"});
    rig.send_expecting(Method::POST, "/v1/views", reader, 201).await;
    let in_use = rig.send(Method::DELETE, "/v1/views/by_carrier", Value::Null).await;
    problem(in_use, 409, "view_in_use").await;
    rig.close().await;
}

#[tokio::test]
async fn roles_are_allowed_to_ask_all_or_none() {
    let rig = Rig::new().await;
    let role = format!("app_{}", rig.database.name);
    let make = format!("CREATE ROLE {role}");
    rig.client.batch_execute(&make).await.unwrap();
    let may = async || {
        let sql = "SELECT count(*) FROM pg_proc \
                   WHERE pronamespace = 'egret'::regnamespace AND has_function_privilege($1::text::name, oid, 'EXECUTE')";
        let row = rig.client.query_one(sql, &[&role]).await.unwrap();
        row.get::<_, i64>(0)
    };
    rig.create_view("by_carrier", BY_CARRIER).await;
    let before = may().await;
    let path = "/v1/view-grants";
    for (roles, said) in [
        (json!([role, "nobody"]), "there is no role `nobody`"),
        (json!([]), "name at least one role"),
    ] {
        let refused = rig.send(Method::POST, path, json!({"roles": roles})).await;
        let refused = problem(refused, 400, "invalid_request").await;
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains(said), "{refused}");
        assert_eq!(may().await, before);
    }
    let elsewhere = json!({"roles": [role], "database": "elsewhere"});
    let refused = rig.send(Method::POST, path, elsewhere).await;
    problem(refused, 404, "database_not_found").await;
    let body = json!({"roles": [role]});
    let writer = rig.test_server.token(&["views:*"], None);
    let asked = rig.test_server.request_without_token(Method::POST, path).bearer_auth(writer);
    let refused = asked.json(&body).send().await.unwrap();
    problem(refused, 403, "scope_missing").await;
    assert_eq!(may().await, before);
    let granted = rig.send_expecting(Method::POST, path, body, 200).await;
    let database = &rig.database.name;
    assert_eq!(granted, json!({"database": database, "roles": [role]}));
    assert!(may().await > before);
    let end = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    rig.client.batch_execute(&end).await.unwrap();
    rig.close().await;
}

#[tokio::test]
async fn operations_on_views_need_their_scopes() {
    let rig = Rig::new().await;
    let ask = async |token: &str, method: Method, body: Value| {
        let request = rig.test_server.request_without_token(method, "/v1/views").bearer_auth(token);
        let request = match body {
            Value::Null => request,
            body => request.json(&body),
        };
        request.send().await.unwrap()
    };
    let view = json!({"name": "by_carrier", "query": BY_CARRIER, "schedule": "manual"});
    let reader = rig.test_server.token(&["views:read"], None);
    assert_eq!(ask(&reader, Method::GET, Value::Null).await.status(), 200);
    let refused = ask(&reader, Method::POST, view.clone()).await;
    problem(refused, 403, "scope_missing").await;
    let writer = rig.test_server.token(&["views:write"], None);
    let mut owned = view.clone();
    owned["owner"] = json!("pg_read_all_data");
    let refused = problem(ask(&writer, Method::POST, owned).await, 403, "scope_missing").await;
    assert!(refused["detail"].as_str().unwrap().contains("admin"), "{refused}");
    let refused = ask(&writer, Method::POST, view.clone()).await;
    problem(refused, 403, "view_right_missing").await;
    let mut other = view.clone();
    other["name"] = json!("of_an_admin");
    let admin = rig.test_server.token(&["admin"], None);
    assert_eq!(ask(&admin, Method::POST, other).await.status(), 201);
    assert_eq!(ask(&writer, Method::POST, view).await.status(), 201);
    let stranger = TokenRequest {
        name: "test".to_owned(),
        scopes: vec!["views:*".to_owned()],
        claims: Default::default(),
        tenant: Some("acme".to_owned()),
        ttl_ms: None,
    };
    let stranger = rig.test_server.tokens.create(&stranger).unwrap().token;
    let refused = ask(&stranger, Method::GET, Value::Null).await;
    problem(refused, 403, "tenant_without_views").await;
    rig.close().await;
}

#[tokio::test]
async fn nothing_of_egret_is_left_when_it_is_removed() {
    let rig = Rig::new().await;
    let size = "SELECT (SELECT count(*) FROM pg_class) + (SELECT count(*) FROM pg_proc) + (SELECT count(*) FROM pg_trigger)
                    + (SELECT count(*) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_') + (SELECT count(*) FROM pg_type)";
    let size = async || -> i64 { rig.client.query_one(size, &[]).await.unwrap().get(0) };
    let before = size().await;
    let none = rig.send_expecting(Method::GET, "/v1/installations", Value::Null, 200).await;
    assert_eq!(none["items"], json!([]));
    rig.create_view("by_carrier", BY_CARRIER).await;
    rig.outbox.install(None, &[]).await.unwrap();
    let found = rig.send_expecting(Method::GET, "/v1/installations", Value::Null, 200).await;
    let found = &found["items"][0];
    assert_eq!(found["database"], rig.database.name.as_str());
    assert_eq!(found["dependents"], json!(["public.by_carrier"]), "{found}");
    assert_eq!(found["outbox_rows"], 0);

    let path = format!("/v1/installations/{}", rig.database.name);
    let refused = rig.send(Method::DELETE, &path, Value::Null).await;
    assert_eq!(refused.status(), 409);
    rig.send_expecting(Method::GET, "/v1/views/by_carrier", Value::Null, 200).await;
    let forced = format!("{path}?force=true");
    let gone = rig.send_expecting(Method::DELETE, &forced, Value::Null, 200).await;
    assert_eq!(gone["views"], 1, "{gone}");
    assert_eq!(size().await, before);
    let flights = "SELECT count(*) FROM flights";
    let flights: i64 = rig.client.query_one(flights, &[]).await.unwrap().get(0);
    assert_eq!(flights, 3);
    // Once more, and it can be installed again.
    let again = rig.send_expecting(Method::DELETE, &path, Value::Null, 200).await;
    assert_eq!(again["views"], 0, "{again}");
    rig.create_view("by_carrier", BY_CARRIER).await;
    rig.close().await;
}
