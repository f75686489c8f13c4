//! A complete Egret without its binary, in a directory of its own: volume, PostgreSQL, engine,
//! server and proxy.
//!
//! Most tests share one and use branches with names of their own. It has a runtime of its own,
//! whose threads write a log that every test checks in the end.

use std::path::PathBuf;
use std::process::Output;
use std::sync::{Arc, LazyLock};

use egret_base::lifecycle::{Service, Stack};
use egret_base::settings::{ByteSize, ConfigDuration};
use egret_base::{Clock, SystemClock, SystemEntropy};
use egret_base_test::eventually;
use egret_branches::{Branches, BranchesConfig, Options, VolumeService, open_volume};
use egret_postgres::embedded::Layout;
use egret_postgres::tokio_postgres::Client;
use egret_postgres::{EmbeddedServer, PostgresConfig, pool};
use egret_postgres_test::{Guardian, free_port, test_directory};
use egret_server::proxy::{BranchDirectory, Proxy, ProxyConfig, ProxyOptions};
use egret_server::{
    Build, Deps, Metrics, ProxyAddress, Server, ServerConfig, TokenRequest, Tokens, branches_routes,
};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::runtime::Runtime;

use crate::proxy::running_proxy;
use crate::test_server::{Log, client, problem};

/// One running Egret and its parts.
pub struct Rig {
    pub branches: Branches,
    pub source: Arc<EmbeddedServer>,
    pub directory: PathBuf,
    server: Arc<Server>,
    proxy: Arc<Proxy>,
    tokens: Arc<Tokens>,
    client: reqwest::Client,
    admin: String,
    stack: Stack,
    log: Log,
    runtime: Option<Runtime>,
    _guardian: Guardian,
}

/// The Egret that tests share: one database `app` with a thousand rows.
pub fn shared() -> &'static Rig {
    static SHARED: LazyLock<Rig> = LazyLock::new(|| {
        // A thread of its own, as a runtime cannot be entered from within another.
        let started = std::thread::spawn(|| Rig::start(|_| ()));
        started.join().expect("the shared Egret starts")
    });
    &SHARED
}

impl Rig {
    /// An Egret of one test's own, with changed settings.
    pub async fn start_own(change: impl FnOnce(&mut BranchesConfig) + Send + 'static) -> Self {
        let started = tokio::task::spawn_blocking(|| Self::start(change));
        started.await.expect("an Egret starts")
    }

    fn start(change: impl FnOnce(&mut BranchesConfig)) -> Self {
        let log = Log::default();
        let threads_log = log.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            // The guard would end the capture; the thread ends with the runtime.
            .on_thread_start(move || std::mem::forget(threads_log.capture()))
            .build()
            .expect("a runtime can be made");
        let mut config = BranchesConfig {
            volume_size: ByteSize::gib(2),
            free_min: ByteSize::mib(64),
            free_critical: ByteSize::mib(32),
            // No session that waits is closed, however long a test takes.
            session_idle: ConfigDuration::secs(86_400),
            ..BranchesConfig::default()
        };
        change(&mut config);
        let mut rig = Self::build(config, log);
        let (stack, source) = (rig.stack.clone(), rig.source.clone());
        runtime.block_on(async move {
            stack.start().await.expect("everything starts");
            make_app(&source).await;
        });
        rig.runtime = Some(runtime);
        rig
    }

    fn build(config: BranchesConfig, log: Log) -> Self {
        let directory = test_directory("doors");
        let guardian = Guardian::new(&directory);
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let mounted = open_volume(&directory, &config).expect("the volume opens");
        let layout = Layout {
            data: mounted.source(),
            socket_dir: directory.join("run/source"),
            log_file: directory.join("postgres-start.log"),
            password_file: directory.join("superuser.password"),
        };
        let postgres =
            PostgresConfig { port: free_port(), sessions_max: 20, ..PostgresConfig::default() };
        let source = EmbeddedServer::new(postgres, layout, clock.clone(), entropy.clone());
        let source = Arc::new(source);
        let options = Options {
            config,
            mounted,
            data_dir: directory.clone(),
            run_dir: directory.join("run/branches"),
            source: source.clone(),
            clock: clock.clone(),
            entropy: entropy.clone(),
        };
        let metrics = Arc::new(Metrics::new("0.0.0-test", clock.now()));
        let (mut branches, mut proxy) = (None, None);
        metrics.register(|registry| {
            let engine = branches.insert(Branches::new(options, registry));
            let door = Arc::new(BranchDirectory::new(engine.clone()));
            let options = ProxyOptions {
                config: ProxyConfig { port: 0, ..ProxyConfig::default() },
                directory: door,
                tls: None,
                clock: clock.clone(),
                entropy: entropy.clone(),
                audit: None,
            };
            let made = Proxy::new(options, registry);
            proxy = Some(Arc::new(made));
        });
        let (branches, proxy) = (branches.unwrap(), proxy.unwrap());
        let state = directory.join("state.db");
        let tokens = Tokens::open(&state, &["branches"], clock.clone(), entropy.clone());
        let tokens = Arc::new(tokens.unwrap());
        let admin = tokens.ensure_admin(&directory.join("admin.token"));
        let deps = Deps {
            build: Build { version: "0.0.0-test", commit: "0123456789ab", profile: "dev" },
            clock,
            entropy,
            tokens: tokens.clone(),
            metrics,
            readiness: Arc::new(Vec::new),
        };
        let config = ServerConfig { port: 0, ..ServerConfig::default() };
        let routes = branches_routes(branches.clone(), ProxyAddress::from_proxy(proxy.clone()));
        let server = Arc::new(Server::builder(config, deps).route(routes).build().unwrap());
        let mut stack = Stack::default();
        stack.push(Arc::new(VolumeService::new(&directory)));
        stack.push(source.clone());
        stack.push(Arc::new(branches.clone()));
        stack.push(server.clone());
        stack.push(proxy.clone());
        Self {
            branches,
            source,
            directory,
            server,
            proxy,
            tokens,
            client: client(),
            admin: admin.unwrap().unwrap().token,
            stack,
            log,
            runtime: None,
            _guardian: guardian,
        }
    }

    /// A request with some token.
    pub fn with_token(&self, token: &str, method: Method, path: &str) -> RequestBuilder {
        let base = self.server.local_address().unwrap();
        // A connection of its own each: kept ones would belong to the runtime of another test.
        let request = self.client.request(method, format!("http://{base}{path}"));
        request.bearer_auth(token).header("connection", "close")
    }

    /// A request with the admin's token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.with_token(&self.admin, method, path)
    }

    /// What a request with a JSON body is answered.
    pub async fn send(&self, method: Method, path: &str, body: Value) -> Response {
        let request = self.request(method, path).json(&body);
        request.send().await.unwrap()
    }

    /// The answer of a GET that succeeds.
    pub async fn get(&self, path: &str) -> Value {
        let response = self.request(Method::GET, path).send().await.unwrap();
        expect_status(response, 200).await
    }

    /// The answer of a POST that succeeds.
    pub async fn post(&self, path: &str, body: Value) -> Value {
        expect_status(self.send(Method::POST, path, body).await, 200).await
    }

    /// The problem that a request meets.
    pub async fn expect_problem(
        &self,
        method: Method,
        path: &str,
        body: Value,
        status: u16,
        code: &str,
    ) -> Value {
        problem(self.send(method, path, body).await, status, code).await
    }

    pub async fn create_branch(&self, name: &str) -> Value {
        let body = json!({"name": name});
        expect_status(self.send(Method::POST, "/v1/branches", body).await, 201).await
    }

    /// The answer to a statement on a branch.
    pub async fn query(&self, branch: &str, sql: &str) -> Value {
        let path = format!("/v1/branches/{branch}/query");
        self.post(&path, json!({"sql": sql})).await
    }

    pub async fn destroy(&self, branch: &str) {
        let path = format!("/v1/branches/{branch}");
        let response = self.request(Method::DELETE, &path).send().await.unwrap();
        expect_status(response, 202).await;
    }

    /// The connection string of a branch.
    pub async fn url(&self, branch: &str) -> String {
        let path = format!("/v1/branches/{branch}/connection");
        self.get(&path).await["url"].as_str().unwrap().to_owned()
    }

    /// Runs a statement with psql.
    pub async fn psql(&self, url: &str, sql: &str) -> Output {
        running_proxy::run(psql(url), sql).await
    }

    /// Where the proxy listens.
    pub fn proxy_port(&self) -> u16 {
        self.proxy.address().unwrap().port()
    }

    /// The text of a new token.
    pub fn token(&self, tenant: &str, scopes: &[&str]) -> String {
        let request = TokenRequest {
            name: "test".to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            claims: Default::default(),
            tenant: Some(tenant.to_owned()),
            ttl_ms: None,
        };
        self.tokens.create(&request).unwrap().token
    }

    /// A superuser's session in the source.
    pub async fn source(&self, database: &str) -> Client {
        superuser(&self.source, database).await
    }

    /// Waits until the files behind every tombstone are gone; registry and disk agree then.
    pub async fn assert_settled(&self) {
        let check = eventually("no tombstone is left", async || {
            let check = self.post("/v1/verify", json!({})).await;
            if check["tombstones"] == 0 { Ok(check) } else { Err(check) }
        })
        .await;
        assert_eq!(check["consistent"], true, "{check}");
    }

    /// Stops the engine alone, while HTTP and the proxy stay open.
    pub async fn stop_engine(&self) {
        let branches = self.branches.clone();
        self.block_on(async move { branches.stop().await }).await;
    }

    pub async fn stop(&self) {
        let stack = self.stack.clone();
        self.block_on(async move { stack.stop().await }).await;
    }

    async fn block_on(&self, work: impl Future<Output = ()> + Send + 'static) {
        let runtime = self.runtime.as_ref().expect("it has started");
        runtime.spawn(work).await.unwrap();
    }

    /// Nothing that was logged so far is a warning or holds a password.
    pub fn assert_no_warnings(&self) {
        assert_eq!(self.warnings(), Vec::<String>::new());
    }

    /// The warnings that were logged so far, without a password in any line.
    pub fn warnings(&self) -> Vec<String> {
        let log = self.log.text();
        assert!(!log.contains(&self.admin), "the log holds the admin's token");
        let is_worry = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        log.lines().filter(is_worry).map(str::to_owned).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Waiting for its threads is not allowed within a test's own runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The answer of a request that succeeds with a given status.
pub async fn expect_status(response: Response, status: u16) -> Value {
    let found = response.status();
    let body: Value = response.json().await.unwrap();
    assert_eq!(found, StatusCode::from_u16(status).unwrap(), "{body}");
    body
}

/// psql as a user would call it, unaligned and without settings of its own.
pub fn psql(url: &str) -> Command {
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"]);
    command.args(["--set", "ON_ERROR_STOP=1", url]);
    running_proxy::isolate_from_user_settings(&mut command);
    command
}

async fn superuser(source: &EmbeddedServer, database: &str) -> Client {
    let mut connection = source.connection(database, "test");
    // A user's session, with the server's own defaults.
    connection.options("");
    pool::connect_with_defaults(&connection).await.unwrap()
}

async fn make_app(source: &EmbeddedServer) {
    let admin = superuser(source, "postgres").await;
    admin.batch_execute("CREATE DATABASE app").await.unwrap();
    let app = superuser(source, "app").await;
    app.batch_execute(
        "CREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL);
         INSERT INTO item SELECT n, 'item ' || n FROM generate_series(1, 1000) AS n",
    )
    .await
    .unwrap();
}
