//! The embedded server: made once, started, adopted after a crash of Egret, restarted when it ends
//! by itself, stopped with Egret.

mod supervisor;

use std::convert::Infallible;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::sync::lock;
use egret_base::{Clock, Condition, Entropy};
use tokio::sync::watch;

use crate::cluster;
use crate::config::PostgresConfig;
use crate::error::{PostgresError, server_error};
use crate::owner::RunAsUser;
use crate::pidfile::PidFile;
use crate::pool;
use crate::postmaster::{Launch, Postmaster, StopMode, kill_orphans};
use crate::provision::{self, Binaries, BinarySearchSpec};
use crate::retry::is_transient;
use crate::session_probe::{SessionRefusal, watch_sessions};
use crate::superuser::socket_connection;
use crate::supervise::{Decision, RestartHistory};
use crate::tuning;
use crate::write_back::WriteBack;

/// How long open sessions are kept after the server has stopped to accept new ones.
const LOSS_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the embedded server's files are.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Data directory of the server.
    pub data: PathBuf,
    /// Where its socket goes.
    pub socket_dir: PathBuf,
    /// What it prints before its own log is open.
    pub log_file: PathBuf,
    /// The superuser's generated password, mode 0600.
    pub password_file: PathBuf,
}

/// State of the supervising task.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ServerState {
    Stopped,
    Starting,
    Running,
    /// The postmaster runs but accepts no sessions, as in crash recovery.
    NotAccepting(SessionRefusal),
    Failed(String),
    CrashLoop(String),
}

impl ServerState {
    /// Whether sessions that are open are answered.
    fn has_sessions(&self) -> bool {
        match self {
            ServerState::Running => true,
            ServerState::NotAccepting(refusal) => refusal.answers_open_sessions,
            _ => false,
        }
    }

    /// The state of a server that has ended, until it is started again.
    fn after_exit(decision: &Decision, reason: String) -> Self {
        if !decision.is_crash_loop {
            return ServerState::Failed(reason);
        }
        ServerState::CrashLoop(format!(
            "{} exits within five minutes, next attempt after {:.1} s; the last one: {reason}",
            decision.exit_count,
            decision.wait.as_secs_f64(),
        ))
    }
}

/// State that the supervising task is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetState {
    Running,
    Stopped,
    Ended,
}

/// A PostgreSQL server that belongs to this Egret.
pub struct EmbeddedServer {
    shared: Arc<EmbeddedInner>,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

struct EmbeddedInner {
    config: PostgresConfig,
    layout: Mutex<Layout>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    prepared: Mutex<Option<(Binaries, RunAsUser)>>,
    state: watch::Sender<ServerState>,
    desired: watch::Sender<TargetState>,
}

impl EmbeddedServer {
    /// A server that is not started yet.
    pub fn new(
        config: PostgresConfig,
        layout: Layout,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self {
            shared: Arc::new(EmbeddedInner {
                config,
                layout: Mutex::new(layout),
                clock,
                entropy,
                prepared: Mutex::new(None),
                state: watch::Sender::new(ServerState::Stopped),
                desired: watch::Sender::new(TargetState::Running),
            }),
            task: Mutex::new(None),
        }
    }

    /// The programs it runs with; known once it has started.
    pub fn binaries(&self) -> Option<Binaries> {
        self.shared.prepared().map(|(binaries, _)| binaries)
    }

    /// The user that it runs as; known once it has started.
    pub fn owner(&self) -> Option<RunAsUser> {
        self.shared.prepared().map(|(_, owner)| owner)
    }

    /// Where its files are now.
    pub fn layout(&self) -> Layout {
        self.shared.layout()
    }

    /// Its TCP port on the loopback address.
    pub fn port(&self) -> u16 {
        self.shared.config.port
    }

    /// How to connect to a database of it as the superuser, over its socket. Ask when the server
    /// has started: before, its version is not known, and settings of later versions are left out.
    pub fn connection(&self, database: &str, engine: &str) -> tokio_postgres::Config {
        let major = self.binaries().map_or(0, |binaries| binaries.major);
        let directory = self.layout().socket_dir;
        let mut connection = socket_connection(&directory, self.port(), major, database, engine);
        connection.connect_timeout(self.shared.config.connect_timeout.duration());
        connection
    }

    /// Returns when the server has answered no session for a while.
    pub fn await_loss(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.shared.state.subscribe();
        async move {
            loop {
                let stopped = state.wait_for(|state| !state.has_sessions());
                let is_unwatched = stopped.await.is_err();
                if is_unwatched {
                    return std::future::pending().await;
                }
                let recovery = state.wait_for(ServerState::has_sessions);
                let is_back =
                    matches!(tokio::time::timeout(LOSS_TIMEOUT, recovery).await, Ok(Ok(_)));
                if !is_back {
                    return;
                }
            }
        }
    }

    /// Opens a session by a connection of this server, which ends when the server is lost.
    ///
    /// # Errors
    /// Those of [`pool::connect`].
    pub async fn open_session(
        &self,
        connection: &tokio_postgres::Config,
    ) -> Result<tokio_postgres::Client, PostgresError> {
        pool::connect_until(connection, self.await_loss()).await
    }

    /// Stops the server, lets `work` move its data directory and says where it is now, and starts
    /// it there. When `work` fails the server is started where it was.
    ///
    /// # Errors
    /// What `work` answers, or why the server does not start.
    pub async fn relocate<E: From<PostgresError>>(
        &self,
        work: impl AsyncFnOnce(PathBuf) -> Result<PathBuf, E>,
    ) -> Result<(), E> {
        self.shared.desired.send_replace(TargetState::Stopped);
        self.shared.await_state(|state| *state == ServerState::Stopped).await;
        let result = work(self.layout().data).await;
        if let Ok(data) = &result {
            self.shared.layout_mut().data.clone_from(data);
        }
        self.shared.desired.send_replace(TargetState::Running);
        self.shared.await_start_outcome().await?;
        result.map(|_| ())
    }

    async fn start_once(&self) -> Result<(), PostgresError> {
        self.shared.prepare().await?;
        self.shared.desired.send_replace(TargetState::Running);
        self.shared.state.send_replace(ServerState::Starting);
        let shared = self.shared.clone();
        let task = tokio::spawn(async move { supervisor::supervise(&shared).await });
        *lock(&self.task) = Some(task);
        let result = self.shared.await_start_outcome().await;
        if result.is_err() {
            self.stop_task().await;
        }
        result
    }

    async fn stop_task(&self) {
        self.shared.desired.send_replace(TargetState::Ended);
        let task = lock(&self.task).take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the supervisor of the embedded server panicked");
        }
    }
}

impl Service for EmbeddedServer {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            self.start_once().await.map_err(|error| StartError {
                service: "postgres",
                is_fatal: false,
                message: error.to_string(),
            })
        })
    }

    fn ready(&self) -> Readiness {
        match &*self.shared.state.borrow() {
            ServerState::Running => Readiness::Ready,
            ServerState::Stopped => Readiness::NotReady("stopped".to_owned()),
            ServerState::Starting => Readiness::NotReady("starting".to_owned()),
            ServerState::NotAccepting(refusal) => {
                Readiness::NotReady(format!("it does not accept sessions: {}", refusal.reason))
            }
            ServerState::Failed(reason) => Readiness::NotReady(reason.clone()),
            ServerState::CrashLoop(reason) => Readiness::NotReady(format!("crash loop: {reason}")),
        }
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop_task())
    }
}

impl EmbeddedInner {
    fn prepared(&self) -> Option<(Binaries, RunAsUser)> {
        lock(&self.prepared).clone()
    }

    fn layout(&self) -> Layout {
        self.layout_mut().clone()
    }

    fn layout_mut(&self) -> std::sync::MutexGuard<'_, Layout> {
        lock(&self.layout)
    }

    async fn await_state(&self, predicate: impl FnMut(&ServerState) -> bool) -> ServerState {
        self.state
            .subscribe()
            .wait_for(predicate)
            .await
            .map_or(ServerState::Stopped, |state| state.clone())
    }

    /// Waits until the server runs or an attempt to start it has failed.
    async fn await_start_outcome(&self) -> Result<(), PostgresError> {
        let is_settled =
            |state: &ServerState| !matches!(state, ServerState::Starting | ServerState::Stopped);
        match self.await_state(is_settled).await {
            ServerState::Running | ServerState::NotAccepting(_) => Ok(()),
            ServerState::Failed(reason) | ServerState::CrashLoop(reason) => {
                Err(PostgresError::NotRunning { reason })
            }
            ServerState::Starting | ServerState::Stopped => Err(PostgresError::NotRunning {
                reason: "it was stopped while starting".to_owned(),
            }),
        }
    }

    /// Finds the programs and the user, and makes the cluster when there is none.
    async fn prepare(&self) -> Result<(), PostgresError> {
        let layout = self.layout();
        let owner = RunAsUser::resolve(&self.config.run_as)?;
        let binaries = provision::find_or_fetch(&BinarySearchSpec {
            configured: self.config.bin.clone(),
            cache: self.config.cache_dir.clone().unwrap_or_else(provision::default_cache),
            major: cluster::major(&layout.data),
        })
        .await?;
        cluster::create_private_directory(&layout.socket_dir, &owner)?;
        let (made_with, made_by, entropy) = (binaries.clone(), owner.clone(), self.entropy.clone());
        tokio::task::spawn_blocking(move || {
            if cluster::is_complete(&layout.data) {
                return Ok(());
            }
            tracing::info!(version = made_with.version, data = %layout.data.display(), "creating the embedded cluster");
            cluster::create(&made_with, &layout.data, &made_by, &*entropy, &layout.password_file)
        })
        .await
        .expect("making a cluster does not panic")?;
        *lock(&self.prepared) = Some((binaries, owner));
        Ok(())
    }

    /// Takes over a running postmaster that fits the configuration, else starts one; returns when
    /// it accepts connections. A directory on the way that is closed to PostgreSQL's user is named.
    async fn launch(&self) -> Result<Postmaster, PostgresError> {
        self.try_launch().await.map_err(|error| {
            let (_, owner) = self.prepared().expect("prepared before it is launched");
            match owner.closed_ancestor(&self.layout().data) {
                Some(directory) => PostgresError::Barrier { directory, name: owner.name },
                None => error,
            }
        })
    }

    async fn try_launch(&self) -> Result<Postmaster, PostgresError> {
        let layout = self.layout();
        if let Some(postmaster) = Postmaster::adopt(&layout.data)? {
            let file = PidFile::read(&layout.data);
            let matches_config = file.is_some_and(|file| {
                file.port == Some(self.config.port)
                    && file.socket_dir.as_ref() == Some(&layout.socket_dir)
            });
            if matches_config {
                tracing::info!(pid = postmaster.pid(), "took over the running embedded server");
                self.await_ready(&postmaster, &layout).await?;
                self.set_search_path(&layout).await;
                return Ok(postmaster);
            }
            postmaster.stop(StopMode::Fast, self.config.stop_timeout.duration()).await;
        }
        kill_orphans(&layout.data).await;
        let (binaries, owner) = self.prepared().ok_or_else(|| PostgresError::NotRunning {
            reason: "it was not prepared".to_owned(),
        })?;
        check_port(self.config.port)?;
        let machine = tuning::detect_machine(&layout.data);
        cluster::configure(&binaries, &layout.data, &owner, &machine, self.config.sessions_max)?;
        // The output of an earlier attempt would be reported as the reason of this one's failure.
        if let Err(error) = std::fs::remove_file(&layout.log_file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(crate::error::io_error("remove", &layout.log_file)(error));
        }
        let postmaster = Postmaster::launch(&Launch {
            binaries,
            data: layout.data.clone(),
            socket_dir: layout.socket_dir.clone(),
            port: self.config.port,
            settings: vec![("listen_addresses".to_owned(), "127.0.0.1".to_owned())],
            owner,
            isolation: None,
            log_file: layout.log_file.clone(),
            oom_score_adj: 0,
            nice: 0,
        })
        .await?;
        self.await_ready(&postmaster, &layout).await?;
        self.set_search_path(&layout).await;
        tracing::info!(
            pid = postmaster.pid(),
            port = self.config.port,
            "the embedded server is ready"
        );
        Ok(postmaster)
    }
}

impl EmbeddedInner {
    /// How the supervisor itself connects.
    fn supervisor_connection(&self, layout: &Layout) -> tokio_postgres::Config {
        let (directory, port) = (&layout.socket_dir, self.config.port);
        let major = cluster::major(&layout.data).unwrap_or_default();
        let mut connection = socket_connection(directory, port, major, "postgres", "postgres");
        connection.connect_timeout(self.config.connect_timeout.duration());
        connection
    }

    /// Has unqualified names of the superuser mean schema `public`: `"$user"` in the default
    /// `search_path` would be schema `egret`. A server that does not take it (one that is read
    /// only) starts all the same.
    async fn set_search_path(&self, layout: &Layout) {
        let setting = async {
            let client = pool::connect(&self.supervisor_connection(layout)).await?;
            let executing = client.batch_execute(include_str!("embedded/search_path.sql"));
            executing.await.map_err(server_error("set the search path of egret"))
        };
        match setting.await {
            Ok(()) => {}
            // The server has stopped: the next start sets it.
            Err(PostgresError::Server { error, .. }) if is_transient(&error) => {
                tracing::info!(%error, "the search_path of role egret is set at the next start");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot set the search_path of role egret: name schemas when you make tables as egret");
            }
        }
    }

    /// Updates the state while the postmaster runs.
    async fn follow_sessions(&self, postmaster: &Postmaster) -> Infallible {
        let connection = self.supervisor_connection(&self.layout());
        let report = |accepted| {
            self.state.send_replace(match accepted {
                Ok(()) => ServerState::Running,
                Err(refusal) => ServerState::NotAccepting(refusal),
            });
        };
        watch_sessions(postmaster, &connection, report).await
    }

    /// Waits until the server accepts connections. Recovery after a crash has no time limit: a
    /// server that is still recovering is reported, and waited for.
    async fn await_ready(
        &self,
        postmaster: &Postmaster,
        layout: &Layout,
    ) -> Result<(), PostgresError> {
        let slow_start = Condition::new("postgres_starting_slowly", "postgres");
        loop {
            let timeout = self.config.start_timeout.duration();
            match postmaster.await_ready(timeout, &layout.log_file).await {
                Err(PostgresError::StartTimeout { waited_ms, .. }) => {
                    let reason = format_args!("not ready after {waited_ms} ms");
                    slow_start.fail(reason, "the embedded server is still starting");
                }
                Err(error) => {
                    postmaster.stop(StopMode::Fast, self.config.stop_timeout.duration()).await;
                    return Err(error);
                }
                Ok(()) => {
                    slow_start.recover("the embedded server has started");
                    return Ok(());
                }
            }
        }
    }
}

/// Reports a port that is in use apart from a server that does not start.
///
/// # Errors
/// [`PostgresError::PortTaken`].
pub fn check_port(port: u16) -> Result<(), PostgresError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map(|_| ())
        .map_err(|_| PostgresError::PortTaken { port })
}
