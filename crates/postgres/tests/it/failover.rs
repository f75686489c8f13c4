//! A primary dies and its standby is promoted: what stands on the connection string goes on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use egret_base::SystemEntropy;
use egret_base::lifecycle::{Readiness, Service};
use egret_base_test::eventually;
use egret_postgres::cluster::{self, create_private_directory};
use egret_postgres::databases::is_database_missing;
use egret_postgres::error::server_error;
use egret_postgres::external::{check, parse};
use egret_postgres::listen::{ListenEvent, Listener};
use egret_postgres::managed::ManagedServer;
use egret_postgres::pool::{self, Pool};
use egret_postgres::postmaster::{Launch, Postmaster};
use egret_postgres::provision::{Binaries, SUPPORTED_MAJORS, Source};
use egret_postgres::retry::{Policy, retry_transient};
use egret_postgres::superuser::socket_connection;
use egret_postgres::{PostgresError, tuning};
use egret_postgres_test::{Guardian, free_port, owner, test_directory};
use rustix::process::{Pid, Signal};
use tokio_postgres::Client;

/// One of the two servers.
struct Node {
    binaries: Binaries,
    directory: PathBuf,
    port: u16,
}

impl Node {
    fn new(directory: &Path, name: &str, binaries: &Binaries) -> Self {
        let directory = directory.join(name);
        create_private_directory(&directory, &owner()).unwrap();
        create_private_directory(&directory.join("run"), &owner()).unwrap();
        Self { binaries: binaries.clone(), directory, port: free_port() }
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    async fn launch(&self) -> Postmaster {
        let log_file = self.directory.join("log");
        let settings = [
            ("listen_addresses", "127.0.0.1"),
            ("fsync", "off"),
            ("shared_buffers", "16MB"),
            ("logging_collector", "off"),
            ("wal_level", "replica"),
            ("max_wal_senders", "4"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let launch = Launch {
            binaries: self.binaries.clone(),
            data: self.data(),
            socket_dir: self.directory.join("run"),
            port: self.port,
            settings: settings.to_vec(),
            owner: owner(),
            log_file: log_file.clone(),
            oom_score_adj: 0,
            nice: 0,
            isolation: None,
        };
        let postmaster = Postmaster::launch(&launch).await.unwrap();
        let ready = postmaster.await_ready(Duration::from_secs(60), &log_file).await;
        ready.unwrap();
        postmaster
    }

    /// A session of this very server, whichever role it has.
    async fn connect(&self) -> Client {
        let socket_dir = self.directory.join("run");
        let mut connection = socket_connection(&socket_dir, self.port, 0, "postgres", "test");
        pool::connect_with_defaults(connection.options("")).await.unwrap()
    }
}

/// An installation with `pg_basebackup`, which the fetched releases lack.
fn binaries() -> Binaries {
    SUPPORTED_MAJORS
        .rev()
        .map(|major| PathBuf::from(format!("/usr/lib/postgresql/{major}/bin")))
        .find(|directory| directory.join("pg_basebackup").exists())
        .map(|directory| Binaries::examine(&directory, Source::Machine).unwrap())
        .expect("`make test` installs PostgreSQL where it is missing")
}

/// A primary, a standby that streams from it, and the superuser's password.
async fn pair(directory: &Path) -> (Node, Postmaster, Node, Postmaster, String) {
    let binaries = binaries();
    let (primary, standby) =
        (Node::new(directory, "primary", &binaries), Node::new(directory, "standby", &binaries));
    let password_file = directory.join("password");
    let (data, entropy) = (primary.data(), SystemEntropy);
    cluster::create(&binaries, &data, &owner(), &entropy, &password_file).unwrap();
    let machine = tuning::detect_machine(directory);
    cluster::configure(&binaries, &data, &owner(), &machine, 30).unwrap();
    let password = std::fs::read_to_string(password_file).unwrap();
    let password = password.trim().to_owned();
    let first = primary.launch().await;
    let mut command = Command::new(binaries.program("pg_basebackup"));
    command
        .args(["--checkpoint=fast", "--write-recovery-conf", "--no-sync"])
        .arg(format!("--pgdata={}", standby.data().display()))
        .arg(format!(
            "--dbname=host=127.0.0.1 port={} user=egret application_name=standby",
            primary.port
        ))
        .env("PGPASSWORD", &password)
        .current_dir(directory)
        .stdin(Stdio::null());
    let made = owner().apply(&mut command).output().unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
    let second = standby.launch().await;
    // From here on a commit is acknowledged when the standby shows it: none is lost.
    let client = primary.connect().await;
    for sql in [
        "ALTER SYSTEM SET synchronous_standby_names = 'standby'",
        "ALTER SYSTEM SET synchronous_commit = 'remote_apply'",
        "SELECT pg_reload_conf()",
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    (primary, first, standby, second, password)
}

/// Records `number` once, however often it is tried.
async fn record(pool: &Pool, number: i32) -> Result<(), PostgresError> {
    let policy = Policy { attempts: 60, ..Policy::default() };
    retry_transient(policy, async || {
        let connection = pool.get().await?;
        let sql = "INSERT INTO public.recorded VALUES ($1) ON CONFLICT DO NOTHING";
        let written = connection.execute(sql, &[&number]).await;
        written.map(|_| ()).map_err(server_error("record"))
    })
    .await
}

/// Returns when the managed server's lock is held on this node.
async fn until_locked(node: &Node) {
    let client = node.connect().await;
    let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    eventually("the lock is held", async || {
        let row = client.query_one(sql, &[]).await.unwrap();
        row.get::<_, i64>(0) > 0
    })
    .await;
}

/// Whether a database that is not there is gone, as a node and a host that is down answer.
async fn is_absent_database_gone(node: &Node, password: &str) -> bool {
    let url = format!(
        "postgresql://egret:{password}@127.0.0.1:{},127.0.0.1:{}/absent?sslmode=disable",
        node.port,
        free_port()
    );
    let connection = parse(&url, "test").unwrap();
    let error = pool::connect(&connection).await.map(|_| ()).unwrap_err();
    is_database_missing(&error)
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_follows_to_the_promoted_standby() {
    let directory = test_directory("failover");
    let _guardian = Guardian::new(&directory);
    let (primary, first, standby, _second, password) = pair(&directory).await;
    assert!(is_absent_database_gone(&primary, &password).await);
    // It may lag behind.
    assert!(!is_absent_database_gone(&standby, &password).await);
    let url = format!(
        "postgresql://egret:{password}@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write&sslmode=disable",
        primary.port, standby.port
    );
    let connection = parse(&url, "test").unwrap();
    assert!(check(&connection).await.unwrap().is_usable());
    let managed = ManagedServer::new(connection.clone());
    managed.start().await.unwrap();
    until_locked(&primary).await;
    let pool = Pool::new(connection.clone(), 2).unwrap();
    let mut listener = Listener::start(connection.clone(), vec!["news".to_owned()]);
    assert_eq!(listener.next().await, Some(ListenEvent::Connected));
    primary
        .connect()
        .await
        .batch_execute("CREATE TABLE public.recorded (number int PRIMARY KEY)")
        .await
        .unwrap();
    record(&pool, 1).await.unwrap();

    let pid = Pid::from_raw(first.pid()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    first.await_exit().await;
    // The writer tries before there is a primary again.
    let promoted = standby.connect().await;
    let promotion = promoted.query_one("SELECT pg_promote()", &[]);
    let (written, answer) = tokio::join!(record(&pool, 2), promotion);
    written.unwrap();
    assert!(answer.unwrap().get::<_, bool>(0));

    let sql = "SELECT array_agg(number ORDER BY number) FROM public.recorded";
    let recorded: Vec<i32> = promoted.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(recorded, [1, 2], "nothing that was acknowledged is lost");
    until_locked(&standby).await;
    eventually("the managed server is ready", async || match managed.ready() {
        Readiness::Ready => Ok(()),
        other => Err(other),
    })
    .await;
    let refused = ManagedServer::new(connection).start().await.unwrap_err();
    assert!(refused.message.contains("managed by another Egret"), "{}", refused.message);
    assert_eq!(listener.next().await, Some(ListenEvent::Connected));
    promoted.batch_execute("NOTIFY news, 'promoted'").await.unwrap();
    let heard =
        ListenEvent::Notified { channel: "news".to_owned(), payload: "promoted".to_owned() };
    assert_eq!(listener.next().await, Some(heard));
    managed.stop().await;
}
