//! Connecting to a branch and running a query on it.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use egret_base::lifecycle::BoxFuture;
use egret_base::sync::lock;
use egret_postgres::wire::scram::Verifier;
use egret_postgres::wire::{Answer, RawSession, Session, Startup, WireError, cancel};
use futures_util::FutureExt;

use super::warm_sessions::may_define_parameters;
use crate::core::attempts::{Attempts, SessionFailure};
use crate::engine::WarmSession;
use crate::engine::{BranchSlot, Branches, Inner};
use crate::error::BranchesError;
use crate::model::{Branch, BranchId, BranchName, BranchState, Credentials};
use crate::stopwatch::milliseconds;
use crate::store::files::SOCKET_PORT;
use crate::store::prepare::ROLE;

/// How long a query keeps its turn: after that the next one begins beside it.
const TURN_TIME: Duration = Duration::from_millis(10);

/// SCRAM iterations of a branch's password: what clients accept as the least (RFC 7677).
const SCRAM_ITERATIONS: u32 = 4_096;

/// A branch's server, ready for a session.
pub struct BranchEndpoint {
    /// Id of the branch.
    pub branch: BranchId,
    /// A session that waited for just this client; without one it gets a fresh one.
    pub warm_session: Option<RawSession>,
    /// The directory of its socket.
    pub socket_dir: PathBuf,
    /// The number in the socket's name.
    pub port: u16,
    /// Counts the session while it is kept.
    pub guard: SessionGuard,
    /// Completes when the branch's postmaster is stopped.
    pub closed: BoxFuture<'static, ()>,
}

/// The session that a client of the proxy asks for.
#[derive(Clone, Copy, Debug)]
pub struct ClientRequest<'a> {
    /// The role to connect as.
    pub role: &'a str,
    /// The database to connect to.
    pub database: &'a str,
    /// The client's own startup parameters.
    pub parameters: &'a [(String, String)],
}

/// One session of a branch; dropping it ends the count.
pub struct SessionGuard {
    slot: Arc<BranchSlot>,
    inner: Arc<Inner>,
    /// The database that it is in, once that is known.
    database: Option<String>,
}

impl SessionGuard {
    pub(crate) fn slot(&self) -> &BranchSlot {
        &self.slot
    }

    fn new(slot: Arc<BranchSlot>, inner: Arc<Inner>) -> Self {
        slot.sessions.fetch_add(1, Ordering::AcqRel);
        *lock(&slot.idle_since) = None;
        Self { slot, inner, database: None }
    }

    /// Notes the database that it is in.
    fn set_database(&mut self, database: &str) {
        lock(&self.slot.databases).push(database.to_owned());
        self.database = Some(database.to_owned());
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        if let Some(left) = self.database.take() {
            let mut databases = lock(&self.slot.databases);
            if let Some(index) = databases.iter().position(|database| *database == left) {
                databases.swap_remove(index);
            }
        }
        if self.slot.sessions.fetch_sub(1, Ordering::AcqRel) == 1 {
            *lock(&self.slot.idle_since) = Some(self.inner.now());
        }
    }
}

impl BranchEndpoint {
    /// Whether the branch's postmaster was stopped since the branch was attached. Ask once.
    pub fn was_stopped(&mut self) -> bool {
        (&mut self.closed).now_or_never().is_some()
    }

    /// The error of a statement as it is reported: when the statement lost its session while the
    /// branch's server ran on, an error that says so takes its place.
    async fn classify_session_loss(&mut self, error: BranchesError) -> BranchesError {
        let classified = match &error {
            BranchesError::Query(WireError::Server(last))
                if last.ends_session() && last.sqlstate == "57P01" =>
            {
                BranchesError::SessionEnded
            }
            // A statement that could not even be sent has not ended the session.
            BranchesError::Query(WireError::Lost(lost))
                if lost.kind() != io::ErrorKind::BrokenPipe =>
            {
                BranchesError::SessionCrashed
            }
            _ => return error,
        };
        let inner = self.guard.inner.clone();
        let is_responding = inner.is_responding(self.branch, self.guard.slot()).await;
        if !is_responding || self.was_stopped() || self.guard.slot().running_postmaster().is_none()
        {
            return error;
        }
        classified
    }
}

/// A statement to run on a branch.
#[derive(Clone, Copy)]
struct Statement<'a> {
    database: &'a str,
    sql: &'a str,
    params: &'a [Option<String>],
    rows_max: u64,
}

/// A column of an answer with its type's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryColumn {
    /// Name of the column.
    pub name: String,
    /// Its type's oid in `pg_type`.
    pub type_oid: u32,
}

/// What a query answered.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryAnswer {
    /// Columns in the order of the values of each row.
    pub columns: Vec<QueryColumn>,
    /// The rows as text, `None` for NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// The command tag, e.g. `INSERT 0 1`.
    pub command: String,
    /// Time from the request to the answer, in milliseconds.
    pub elapsed_ms: f64,
}

impl Branches {
    /// Role and password of a branch, as its connection string has them.
    ///
    /// # Errors
    /// [`BranchesError::NotFound`].
    pub fn credentials(
        &self,
        tenant: &str,
        name: &BranchName,
    ) -> Result<Credentials, BranchesError> {
        let branch = self.inner.find_branch(tenant, name)?;
        Ok(Credentials {
            user: ROLE.to_owned(),
            password: self.inner.state()?.secret.password(branch.id),
        })
    }

    /// A branch, and what checks the password of its role; wakes nothing.
    ///
    /// # Errors
    /// [`BranchesError::NotFound`].
    pub async fn verifier(
        &self,
        tenant: &str,
        name: &BranchName,
    ) -> Result<(BranchId, Arc<Verifier>), BranchesError> {
        // Whether its time is over is told when the password is proved: see `attach_client`.
        let branch = self.inner.find_branch(tenant, name)?;
        Ok((branch.id, self.inner.verifier_of(branch.id).await?))
    }

    /// A verifier that no password fits, in place of that of a branch or role that does not exist;
    /// always the same for the same `identity`.
    ///
    /// # Errors
    /// [`BranchesError::Stopping`] when the engine is not running.
    pub fn decoy_verifier(&self, identity: &str) -> Result<Verifier, BranchesError> {
        let key = self.inner.state()?.secret.decoy_key();
        Ok(Verifier::mock(&key, identity, SCRAM_ITERATIONS))
    }

    /// The server of a branch: wakes it when it is suspended, waits while it starts or is reset.
    ///
    /// # Errors
    /// [`BranchesError`] when it cannot run.
    pub async fn attach(
        &self,
        tenant: &str,
        name: &BranchName,
    ) -> Result<BranchEndpoint, BranchesError> {
        self.attach_branch(self.inner.find_branch(tenant, name)?).await
    }

    async fn attach_branch(&self, branch: Branch) -> Result<BranchEndpoint, BranchesError> {
        let inner = &self.inner;
        inner.check_lifetime(&branch)?;
        let slot = inner.slot(branch.id);
        // Counted before it is looked at, so that the idle rule does not suspend it in between.
        let guard = SessionGuard::new(slot.clone(), inner.clone());
        let mut stop_receiver = slot.postmaster_ends.subscribe();
        stop_receiver.mark_unchanged();
        if slot.postmaster().is_none() {
            Box::pin(self.ensure_running(&branch, &slot)).await?;
            stop_receiver.mark_unchanged();
        }
        inner.pool.note_activity();
        Ok(BranchEndpoint {
            branch: branch.id,
            warm_session: None,
            socket_dir: inner.paths.socket_dir(branch.id),
            port: SOCKET_PORT,
            guard,
            closed: Box::pin(async move {
                // The sender lives in the slot; when that is gone the branch is.
                let _ = stop_receiver.changed().await;
            }),
        })
    }

    /// The server of a branch for a client that has shown that it knows the password of branch
    /// `id`.
    ///
    /// # Errors
    /// As [`Branches::attach`]; [`BranchesError::NotFound`] when the name is another branch's by
    /// now.
    pub async fn attach_client(
        &self,
        tenant: &str,
        name: &BranchName,
        id: BranchId,
        request: ClientRequest<'_>,
    ) -> Result<BranchEndpoint, BranchesError> {
        let branch = self.inner.find_branch(tenant, name)?;
        if branch.id != id {
            return Err(BranchesError::NotFound { name: name.to_string() });
        }
        let mut endpoint = self.attach_branch(branch).await?;
        endpoint.guard.set_database(request.database);
        let slot = endpoint.guard.slot();
        // Sessions are kept ready for the branch's own role only.
        if request.role == ROLE {
            let (database, parameters) = (request.database, request.parameters);
            let warm_session = self.inner.take_client_session(slot, tenant, database, parameters);
            endpoint.warm_session = warm_session.await;
        }
        Ok(endpoint)
    }

    /// Waits until the branch's slot is released, then starts the branch if that is still needed.
    async fn ensure_running(
        &self,
        branch: &Branch,
        slot: &Arc<BranchSlot>,
    ) -> Result<(), BranchesError> {
        let inner = &self.inner;
        drop(slot.lock.lock().await);
        if slot.postmaster().is_some() {
            return Ok(());
        }
        let branch = inner.find_branch(&branch.tenant, &branch.name)?;
        match branch.state {
            BranchState::Suspended | BranchState::Running => {
                let inner = inner.clone();
                tokio::spawn(async move { inner.wake(branch).await })
                    .await
                    .map_err(|_| BranchesError::Stopping)??;
                Ok(())
            }
            state => Err(BranchesError::WrongState {
                name: branch.name.to_string(),
                state: state.as_str(),
                hint: branch
                    .failure
                    .unwrap_or_else(|| "look at it with `egret branch show`".to_owned()),
            }),
        }
    }

    /// Runs one statement with text parameters, or several without, as the branch's role.
    ///
    /// # Errors
    /// [`BranchesError::Query`] with the server's own words, [`BranchesError::SessionEnded`] and
    /// [`BranchesError::SessionCrashed`] where it lost its session,
    /// [`BranchesError::QueryTimeout`], a limit by name when the answer is too large.
    pub async fn query(
        &self,
        tenant: &str,
        name: &BranchName,
        database: &str,
        sql: &str,
        params: &[Option<String>],
        rows_max: Option<u64>,
    ) -> Result<QueryAnswer, BranchesError> {
        let started = Instant::now();
        let config = &self.inner.config;
        let statement = Statement {
            database,
            sql,
            params,
            rows_max: rows_max.unwrap_or(config.query_rows_max).min(config.query_rows_max),
        };
        let mut attempts = Attempts::default();
        loop {
            let mut endpoint = self.attach(tenant, name).await?;
            endpoint.guard.set_database(database);
            let outcome = {
                let slot = endpoint.guard.slot();
                let running = self.inner.run_query(endpoint.branch, slot, &statement);
                self.inner.run_in_turn(std::pin::pin!(running)).await
            };
            match outcome {
                Ok(answer) => {
                    let elapsed = started.elapsed();
                    self.inner.metrics.observe_query(elapsed);
                    return match answer {
                        Ok(answer) => Ok(into_query_answer(answer, elapsed)),
                        Err(error) => Err(endpoint.classify_session_loss(error).await),
                    };
                }
                Err(error) => {
                    let failure = SessionFailure::from_error(&error, endpoint.was_stopped());
                    let in_time = started.elapsed() < config.query_timeout.duration();
                    let wait = failure.and_then(|failure| attempts.wait_after(failure));
                    let Some(wait) = wait.filter(|_| in_time) else {
                        return Err(error.into());
                    };
                    drop(endpoint);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }
}

fn into_query_answer(answer: Answer, elapsed: Duration) -> QueryAnswer {
    QueryAnswer {
        columns: answer
            .columns
            .into_iter()
            .map(|column| QueryColumn { name: column.name, type_oid: column.type_oid })
            .collect(),
        rows: answer.rows,
        command: answer.command_tag,
        elapsed_ms: milliseconds(elapsed),
    }
}

impl Inner {
    /// Does work when it is its turn. Work that takes longer than a turn goes on beside the next.
    async fn run_in_turn<T>(&self, mut work: Pin<&mut impl Future<Output = T>>) -> T {
        let turn = self.query_permits.acquire().await;
        match tokio::time::timeout(TURN_TIME, &mut work).await {
            Ok(output) => output,
            Err(_) => {
                drop(turn);
                work.await
            }
        }
    }

    /// The answer to a statement, or why the branch's server opened no session for it.
    async fn run_query(
        &self,
        id: BranchId,
        slot: &BranchSlot,
        statement: &Statement<'_>,
    ) -> Result<Result<Answer, BranchesError>, WireError> {
        let timeout = self.config.query_timeout;
        let opening = self.acquire_query_session(id, slot, statement.database);
        let Ok(warm_session) = tokio::time::timeout(timeout.duration(), opening).await else {
            return Ok(Err(BranchesError::QueryTimeout { timeout_ms: timeout.0 }));
        };
        let resident = warm_session?;
        Ok(self.run_statement(id, slot, statement, resident).await)
    }

    async fn run_statement(
        &self,
        id: BranchId,
        slot: &BranchSlot,
        statement: &Statement<'_>,
        mut warm_session: WarmSession,
    ) -> Result<Answer, BranchesError> {
        let Statement { sql, params, rows_max, .. } = *statement;
        let (timeout, bytes_max) = (self.config.query_timeout, self.config.query_bytes_max);
        let session = warm_session.session();
        let key = session.key();
        let query = session.query(sql, params, rows_max, bytes_max.bytes());
        let Ok(answer) = tokio::time::timeout(timeout.duration(), query).await else {
            cancel(&self.paths.socket_dir(id), SOCKET_PORT, key).await?;
            return Err(BranchesError::QueryTimeout { timeout_ms: timeout.0 });
        };
        if may_define_parameters(sql) {
            warm_session.close().await;
        } else {
            // Also after an error of the statement's, which leaves the session as it was.
            self.release_query_session(slot, warm_session).await;
        }
        Ok(answer?)
    }

    /// What checks the password of a branch's role, derived once.
    pub(crate) async fn verifier_of(&self, id: BranchId) -> Result<Arc<Verifier>, BranchesError> {
        if let Some(cached) = lock(&self.verifiers).get(&id) {
            return Ok(cached.clone());
        }
        let secret = &self.state()?.secret;
        let (password, salt) = (secret.password(id), secret.salt(id));
        // Thousands of hashes: not on a thread that serves sessions.
        let derived = tokio::task::spawn_blocking(move || {
            Verifier::derive(&password, &salt, SCRAM_ITERATIONS)
        })
        .await
        .expect("deriving a key does not panic");
        let verifier = Arc::new(derived.expect("a generated password is plain ASCII"));
        // A branch may have been purged meanwhile, with whatever was kept of it.
        if self.state()?.registry.branch(id).is_some() {
            lock(&self.verifiers).insert(id, verifier.clone());
        }
        Ok(verifier)
    }

    /// Refuses a branch whose time is over, though the worker has not destroyed it yet.
    fn check_lifetime(&self, branch: &Branch) -> Result<(), BranchesError> {
        match branch.expires_at {
            Some(at) if at <= self.now() && !branch.protected => {
                Err(BranchesError::Expired { name: branch.name.to_string(), at })
            }
            _ => Ok(()),
        }
    }

    /// A session of the branch's role for Egret's own use.
    pub(crate) async fn open_session(
        &self,
        branch: &Branch,
        database: &str,
    ) -> Result<Session, WireError> {
        let startup = Startup {
            user: ROLE.to_owned(),
            database: database.to_owned(),
            parameters: vec![("application_name".to_owned(), "egret/branches".to_owned())],
        };
        Session::connect(&self.paths.socket_dir(branch.id), SOCKET_PORT, &startup).await
    }
}
