//! A proxy of its own for each test, before a database of its own, with a directory that the test
//! can hold back.
//!
//! The tests run on one thread each, so that the log captured is the test's own.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use egret_base::lifecycle::{BoxFuture, Service};
use egret_base::{Entropy, SystemClock, SystemEntropy, Timestamp};
use egret_branches::model::BranchId;
use egret_postgres::tokio_postgres::{self, NoTls};
use egret_postgres::wire::scram::Verifier;
use egret_postgres_test::TestDatabase;
use egret_server::proxy::{
    Backend, ConnectionRefusal, Directory, Entry, Proxy, ProxyConfig, ProxyOptions, Route,
};
use prometheus_client::registry::Registry;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::watch;
use tracing::subscriber::DefaultGuard;

use crate::test_server::Log;

/// The only branch there is.
pub const BRANCH: &str = "pr-42";
/// The only role that may enter it.
pub const ROLE: &str = "egret_branch";
pub const PASSWORD: &str = "correct-horse-battery";

/// The version of PostgreSQL behind the proxy.
const MAJOR: u32 = 15;

/// After which a client that hangs is given up, so that a fault does not hang the tests.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Held by a test with many sessions: two such at once are more than the server admits.
pub static LOAD_TEST_LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

static VERIFIER: LazyLock<Arc<Verifier>> = LazyLock::new(|| {
    let mut salt = [0; 16];
    SystemEntropy.fill(&mut salt);
    Arc::new(Verifier::derive(PASSWORD, &salt, 4096).unwrap())
});

/// A started proxy with its database, directory and log.
pub struct RunningProxy {
    pub proxy: Proxy,
    pub database: TestDatabase,
    pub branches: Arc<Branches>,
    pub registry: Registry,
    pub log: Log,
    _capture: DefaultGuard,
}

/// A directory with one branch.
pub struct Branches {
    pub socket_dir: PathBuf,
    port: u16,
    /// Where `attach` points to instead of the server.
    pub elsewhere: Mutex<Option<PathBuf>>,
    /// Where only the next `attach` points to.
    pub elsewhere_once: Mutex<Option<PathBuf>>,
    /// Whether `attach` may answer.
    pub awake: watch::Sender<bool>,
    /// Whether the branch is still there.
    pub present: watch::Sender<bool>,
    /// Calls of `attach` that have begun.
    pub attaching: watch::Sender<usize>,
    /// Sessions and attempts that hold a guard.
    pub guards: watch::Sender<usize>,
    /// Number of calls of `lookup`.
    pub lookups: AtomicUsize,
}

/// One of [`Branches::guards`], given back when dropped.
struct Guard(Arc<Branches>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.guards.send_modify(|guards| *guards -= 1);
    }
}

/// The directory as the proxy holds it.
pub struct SharedDirectory(pub Arc<Branches>);

impl Directory for SharedDirectory {
    fn lookup<'a>(
        &'a self,
        _: &'a str,
        route: &'a Route,
    ) -> BoxFuture<'a, Result<Entry, ConnectionRefusal>> {
        Box::pin(async move {
            self.0.lookups.fetch_add(1, Ordering::SeqCst);
            if route.branch != BRANCH {
                let message = format!("branch \"{}\" does not exist", route.branch);
                return Err(ConnectionRefusal::new("3D000", message)
                    .with_hint("egret branch list shows them"));
            }
            Ok(Entry {
                branch: BranchId::new(Timestamp::from_micros(1), [1; 10]),
                role: ROLE.to_owned(),
                verifier: VERIFIER.clone(),
            })
        })
    }

    fn decoy_verifier(&self, route: &Route) -> Option<Verifier> {
        Some(Verifier::mock(&[7; 32], &route.branch, 4096))
    }

    fn attach<'a>(
        &'a self,
        _: &'a Route,
        _: &'a Entry,
        _: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<Backend, ConnectionRefusal>> {
        Box::pin(async move {
            let branches = &self.0;
            branches.guards.send_modify(|guards| *guards += 1);
            let guard = Guard(branches.clone());
            branches.attaching.send_modify(|count| *count += 1);
            branches.awake.subscribe().wait_for(|awake| *awake).await.unwrap();
            let mut present = branches.present.subscribe();
            let once = branches.elsewhere_once.lock().unwrap().take();
            let elsewhere = once.or_else(|| branches.elsewhere.lock().unwrap().clone());
            Ok(Backend {
                socket_dir: elsewhere.unwrap_or_else(|| branches.socket_dir.clone()),
                port: branches.port,
                // The test server lets this process in as its superuser.
                role: "egret".to_owned(),
                resident: None,
                guard: Box::new(guard),
                closed: Box::pin(async move {
                    present.wait_for(|present| !*present).await.unwrap();
                }),
            })
        })
    }
}

/// What a proxy before these branches stands on.
pub fn options(
    config: ProxyConfig,
    branches: &Arc<Branches>,
    tls: Option<Arc<rustls::ServerConfig>>,
) -> ProxyOptions {
    ProxyOptions {
        config,
        directory: Arc::new(SharedDirectory(branches.clone())),
        tls,
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        audit: None,
    }
}

impl RunningProxy {
    pub async fn open() -> Self {
        Self::with(ProxyConfig::default(), None).await
    }

    pub async fn with(config: ProxyConfig, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let log = Log::default();
        let capture = log.capture();
        let database = TestDatabase::create(MAJOR).await;
        let branches = Arc::new(Branches {
            socket_dir: database.server.socket_dir.clone(),
            port: database.server.port,
            elsewhere: Mutex::default(),
            elsewhere_once: Mutex::default(),
            awake: watch::Sender::new(true),
            present: watch::Sender::new(true),
            attaching: watch::Sender::new(0),
            guards: watch::Sender::new(0),
            lookups: AtomicUsize::new(0),
        });
        let mut registry = Registry::default();
        let config = ProxyConfig { port: 0, ..config };
        let proxy = Proxy::new(options(config, &branches, tls), &mut registry);
        proxy.start().await.unwrap();
        Self { proxy, database, branches, registry, log, _capture: capture }
    }

    pub fn port(&self) -> u16 {
        self.proxy.address().unwrap().port()
    }

    /// The database as a client writes it.
    pub fn database(&self) -> String {
        format!("{}@{BRANCH}", self.database.name)
    }

    /// A connection string of libpq; what stands later in it wins.
    pub fn connection_string(&self, more: &str) -> String {
        let (port, database) = (self.port(), self.database());
        format!(
            "host=127.0.0.1 port={port} dbname={database} user={ROLE} password={PASSWORD} \
             sslmode=disable {more}"
        )
    }

    /// How the driver in this process connects.
    pub fn driver(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(self.port())
            .user(ROLE)
            .password(PASSWORD)
            .dbname(self.database());
        config
    }

    /// A session through the proxy.
    pub async fn connect(&self) -> tokio_postgres::Client {
        connect(&self.driver()).await.unwrap()
    }

    /// Waits until as many sessions hold a guard.
    pub async fn await_guards(&self, wanted: usize) {
        let mut guards = self.branches.guards.subscribe();
        guards.wait_for(|guards| *guards == wanted).await.unwrap();
    }

    /// A metric's value, 0 when it has not been counted yet.
    pub fn metric(&self, name: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .map(|value| value.parse::<f64>().unwrap())
            .sum()
    }

    /// Runs psql with its arguments and standard input.
    pub async fn psql(&self, conninfo: &str, args: &[&str], input: &str) -> Output {
        let mut command = self.psql_command(conninfo);
        command.args(args);
        run(command, input).await
    }

    pub fn psql_command(&self, conninfo: &str) -> Command {
        let mut command = Command::new("psql");
        command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"]);
        command.args(["--set", "ON_ERROR_STOP=1", "--dbname", conninfo]);
        isolate_from_user_settings(&mut command);
        command
    }

    /// Runs a Python program with psycopg; it finds its connection string in `CONNINFO`.
    pub async fn python(&self, conninfo: &str, program: &str) -> Output {
        let python = client_program("EGRET_TEST_PYTHON", "python/bin/python");
        let mut command = Command::new(python);
        command.args(["-c", program]).env("CONNINFO", conninfo);
        isolate_from_user_settings(&mut command);
        run(command, "").await
    }

    /// Runs a Node program with node-postgres; it finds host, port and so on in its environment.
    pub async fn node(&self, program: &str, password: &str, database: &str) -> Output {
        let modules = client_program("EGRET_TEST_NODE_MODULES", "node/node_modules");
        let mut command = Command::new("node");
        command.args(["--eval", program]);
        isolate_from_user_settings(&mut command);
        command
            .env("NODE_PATH", modules)
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port().to_string())
            .env("PGUSER", ROLE)
            .env("PGPASSWORD", password)
            .env("PGDATABASE", database);
        run(command, "").await
    }

    /// Stops the proxy and checks that no session is left, no password is in the log, and no
    /// warning was logged.
    pub async fn close(self) {
        self.proxy.stop().await;
        assert_eq!(*self.branches.guards.borrow(), 0);
        assert_eq!(self.metric("egret_proxy_sessions_open"), 0.0);
        let log = self.log.text();
        for word in [" WARN ", " ERROR ", PASSWORD] {
            assert!(!log.contains(word), "{log}");
        }
    }
}

/// A session of the driver, whose connection ends by itself.
pub async fn connect(
    config: &tokio_postgres::Config,
) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// What a program printed; it must have succeeded.
pub fn expect_success(output: Output) -> String {
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a program complained of; it must have failed.
pub fn expect_failure(output: Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Keeps a client from reading this machine's own settings.
pub fn isolate_from_user_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command
        .env("PGPASSFILE", "/dev/null")
        .env("PGAPPNAME", "egret-test")
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
}

/// Runs a program to its end; one that hangs is given up.
pub async fn run(mut command: Command, input: &str) -> Output {
    let mut child = command.spawn().expect("`make test` installs every client");
    let mut stdin = child.stdin.take().unwrap();
    let finished = async {
        // A client that is refused ends without having read its input.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        child.wait_with_output().await.unwrap()
    };
    tokio::time::timeout(TIMEOUT, finished).await.expect("no client needs this long")
}

/// A client program that `make test` installs, or the one a variable names.
pub fn client_program(variable: &str, fallback: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-clients").join(fallback),
        PathBuf::from,
    )
}
