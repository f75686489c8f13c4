//! Real servers for tests: one per version and test process, one database per test.
//!
//! A guardian process waits for the end of the test process, however it comes, then stops the
//! server and removes its files, so that nothing is left behind.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use egret_base::SystemEntropy;

use egret_postgres::owner::RunAsUser;
use egret_postgres::postmaster::{Launch, Postmaster, StopMode, kill_orphans};
use egret_postgres::provision::{self, Binaries, BinarySearchSpec};
use egret_postgres::superuser::socket_connection;
use egret_postgres::{cluster, pool, tuning};

/// A directory for one test that the unprivileged user can reach and that is removed at the end.
pub fn test_directory(purpose: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("egret-{purpose}-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir(&path).expect("a temporary directory can be made");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711))
        .expect("a temporary directory can be opened to others");
    path
}

/// Statements that make `role`, which may do nothing, and in schema `mallory` functions of it that
/// note in `mallory.seen` as which role they are run, in everything that a query may reach:
/// operators, casts, domains, indexes, constraints, policies, views. One of its tables has a name
/// that drops `table` where names are not quoted.
pub fn attacker_sql(role: &str, table: &str) -> String {
    let sql = include_str!("attacker.sql");
    sql.replace("{role}", role).replace("{table}", table)
}

/// Statements that give `database` to `role`, whose objects and settings there are traps for the
/// sessions of others. Each that is caught draws from sequence `trap.caught`, and makes the role a
/// superuser where the session has the right to.
pub fn trap_sql(role: &str, database: &str) -> String {
    let sql = include_str!("traps.sql");
    sql.replace("{role}", role).replace("{database}", database)
}

/// A free TCP port of the loopback address, which no other test is given.
///
/// It lies below the ports which the kernel hands out by itself, so that no connection takes it
/// before a server does. A socket with the port in its name holds it until this process ends.
pub fn free_port() -> u16 {
    static PORT_LOCKS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    const PORTS: std::ops::Range<u32> = 12_000..32_000;
    let mut held = PORT_LOCKS.lock().expect("no test dies here");
    let first = std::process::id().wrapping_mul(97);
    for offset in 0..PORTS.len() as u32 {
        let port = PORTS.start + first.wrapping_add(offset) % PORTS.len() as u32;
        let name = SocketAddr::from_abstract_name(format!("egret-test-port-{port}"));
        let holder = UnixListener::bind_addr(&name.expect("a name without zero bytes"));
        let Ok(holder) = holder else { continue };
        let port = u16::try_from(port).expect("PORTS are 16 bits wide");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            held.push(holder);
            return port;
        }
    }
    panic!("no port in {PORTS:?} is free");
}

/// Removes a directory and stops the processes in it when the test process ends or this is dropped.
pub struct Guardian {
    child: Child,
}

impl Guardian {
    /// Guards `directory`: every process whose working directory is inside it is killed, whatever
    /// is mounted inside it is unmounted, and the directory is removed.
    pub fn new(directory: &Path) -> Self {
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg(include_str!("guardian.sh"))
            .arg("guardian")
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        egret_linux::session::in_own_session(&mut command);
        let child = command.spawn().expect("bash is installed");
        Self { child }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("the guardian is a child of this process");
        assert!(status.success(), "the guardian could not clean up");
    }
}

/// The programs of one major version, fetched or found.
pub async fn binaries(major: u32) -> Binaries {
    provision::find_or_fetch(&BinarySearchSpec {
        configured: None,
        cache: provision::default_cache(),
        major: Some(major),
    })
    .await
    .expect("every supported version can be fetched")
}

/// The newest installation with `pg_dump`, which the fetched releases lack, and its major version.
pub fn client_programs() -> (u32, PathBuf) {
    (15..=18)
        .rev()
        .map(|major| (major, PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"))))
        .find(|(_, directory)| directory.join("pg_dump").exists())
        .expect("`make test` installs PostgreSQL where it is missing")
}

/// The unprivileged user for the servers of tests.
pub fn owner() -> RunAsUser {
    RunAsUser::resolve("egret").expect("the unprivileged user exists or can be made")
}

/// A running server of one version.
pub struct TestServer {
    /// Where its socket is.
    pub socket_dir: PathBuf,
    /// The number that names the socket.
    pub port: u16,
    /// Programs of the server.
    pub binaries: Binaries,
    data: PathBuf,
    _guardian: Guardian,
}

/// The shared server of a major version, started by the first test that asks.
pub fn shared_server(major: u32) -> Arc<TestServer> {
    type Servers = Mutex<HashMap<u32, Arc<OnceLock<Arc<TestServer>>>>>;
    static SERVERS: OnceLock<Servers> = OnceLock::new();
    let slot = SERVERS
        .get_or_init(Mutex::default)
        .lock()
        .expect("no test panics while it holds this lock")
        .entry(major)
        .or_default()
        .clone();
    // A thread with a runtime of its own: the runtime of the first test ends with that test.
    slot.get_or_init(|| {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(start_own_server(major))
        })
        .join()
        .expect("the server of this version starts")
    })
    .clone()
}

/// A server of one test's own.
pub async fn start_own_server(major: u32) -> Arc<TestServer> {
    let directory = test_directory(&format!("postgres{major}"));
    let guardian = Guardian::new(&directory);
    let (binaries, owner) = (binaries(major).await, owner());
    let data = directory.join("data");
    cluster::create(&binaries, &data, &owner, &SystemEntropy, &directory.join("password"))
        .expect("initdb works");
    let machine = tuning::detect_machine(&directory);
    cluster::configure(&binaries, &data, &owner, &machine, 100).expect("files can be written");
    start_server(&directory, binaries, guardian).await
}

/// Runs a server on the data in a directory.
async fn start_server(directory: &Path, binaries: Binaries, guardian: Guardian) -> Arc<TestServer> {
    let (data, socket_dir) = (directory.join("data"), directory.join("run"));
    cluster::create_private_directory(&socket_dir, &owner()).expect("a directory can be made");
    let server = TestServer { socket_dir, port: 5432, binaries, data, _guardian: guardian };
    server.start().await;
    Arc::new(server)
}

/// How a server that is started on a backup recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It continues where the backup ends, as after a crash.
    Crash,
    /// It continues on a timeline of its own, as after a restore to some point in time.
    Promotion,
}

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Termination {
    /// A clean shutdown, with a checkpoint.
    Stop,
    /// All of its processes are killed.
    Kill,
}

impl TestServer {
    /// Ends this server and starts it again on its files. Sessions in it are lost.
    pub async fn restart(&self, ending: Termination) {
        self.end(ending).await;
        self.start().await;
    }

    /// Ends this server as `ending` says.
    pub async fn end(&self, ending: Termination) {
        let postmaster =
            Postmaster::adopt(&self.data).expect("its files can be read").expect("the server runs");
        match ending {
            Termination::Stop => {
                let timeout = Duration::from_secs(60);
                postmaster.stop(StopMode::Fast, timeout).await;
            }
            Termination::Kill => {
                kill_orphans(&self.data).await;
                postmaster.await_exit().await;
            }
        }
    }

    /// Starts this server, which has not run yet or was ended, on its files.
    pub async fn start(&self) {
        let log_file = self.data.with_file_name("log");
        let settings = [
            ("listen_addresses", ""),
            ("fsync", "off"),
            ("shared_buffers", "64MB"),
            ("logging_collector", "off"),
            ("max_prepared_transactions", "10"),
        ];
        let postmaster = Postmaster::launch(&Launch {
            binaries: self.binaries.clone(),
            data: self.data.clone(),
            socket_dir: self.socket_dir.clone(),
            port: self.port,
            settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            owner: owner(),
            log_file: log_file.clone(),
            oom_score_adj: 0,
            nice: 0,
            isolation: None,
        })
        .await
        .expect("the server can be launched");
        postmaster
            .await_ready(Duration::from_secs(60), &log_file)
            .await
            .expect("the server becomes ready");
    }

    /// Stops every process of this server in its tracks until what is returned is dropped.
    pub fn freeze(&self) -> impl Send + use<> {
        let postmaster =
            Postmaster::adopt(&self.data).expect("its files can be read").expect("the server runs");
        let frozen = postmaster.freeze();
        frozen.expect("its processes can be stopped")
    }

    /// Another server, on a backup of this one's files that is taken while it runs.
    pub async fn copy(&self, recovery: Recovery) -> Arc<TestServer> {
        let directory = test_directory("postgres-copy");
        let guardian = Guardian::new(&directory);
        let data = directory.join("data");
        let copy_files = |from: &Path, to: &Path| {
            let status = Command::new("cp").arg("-aT").arg(from).arg(to).status();
            assert!(status.is_ok_and(|status| status.success()), "cp failed");
        };
        let connection = socket_connection(&self.socket_dir, self.port, 0, "postgres", "test");
        let client = pool::connect(&connection).await.expect("the test server accepts connections");
        let query = |sql| client.query_one(sql, &[]);
        let began = query("SELECT pg_catalog.pg_backup_start('copy', true)").await;
        began.expect("a backup can begin");
        copy_files(&self.data, &data);
        let ended = query("SELECT labelfile FROM pg_catalog.pg_backup_stop(false)").await;
        let label: String = ended.expect("a backup can end").get(0);
        copy_files(&self.data.join("pg_wal"), &data.join("pg_wal"));
        std::fs::remove_file(data.join("postmaster.pid")).expect("it was copied");
        let mut files = vec![("backup_label", label.as_str())];
        if recovery == Recovery::Promotion {
            files.push(("recovery.signal", ""));
            files.push(("postgresql.auto.conf", "restore_command = 'false'\nhot_standby = off\n"));
        }
        for (name, text) in files {
            let written = cluster::write_owned(&data.join(name), text, &owner());
            written.expect("a file can be written");
        }
        start_server(&directory, self.binaries.clone(), guardian).await
    }
}

/// A database of one test's own.
pub struct TestDatabase {
    /// Name of the database.
    pub name: String,
    /// The server it is in.
    pub server: Arc<TestServer>,
}

impl TestDatabase {
    /// Makes a database in the shared server of a major version.
    pub async fn create(major: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let server = tokio::task::spawn_blocking(move || shared_server(major))
            .await
            .expect("the server of this version starts");
        Self::create_in(server, name).await
    }

    /// Makes a database in a server.
    pub async fn create_in(server: Arc<TestServer>, name: String) -> Self {
        let database = Self { name, server };
        let client = database.connect_to("postgres").await;
        // As on an embedded server, where unqualified names do not mean schema `egret`.
        for statement in ["CREATE DATABASE {}", "ALTER DATABASE {} SET search_path = public"] {
            let made = client.batch_execute(&statement.replace("{}", &database.name)).await;
            made.expect("a database can be made");
        }
        database
    }

    /// How to connect to it as the superuser.
    pub fn connection(&self) -> tokio_postgres::Config {
        self.connection_to(&self.name)
    }

    /// A session of the superuser in it.
    pub async fn connect(&self) -> tokio_postgres::Client {
        self.connect_to(&self.name).await
    }

    fn connection_to(&self, database: &str) -> tokio_postgres::Config {
        let (socket_dir, port) = (&self.server.socket_dir, self.server.port);
        let mut connection = socket_connection(socket_dir, port, 0, database, "test");
        // A user's session, with the server's own defaults.
        connection.options("");
        connection
    }

    async fn connect_to(&self, database: &str) -> tokio_postgres::Client {
        pool::connect_with_defaults(&self.connection_to(database))
            .await
            .expect("the test server accepts connections")
    }
}
