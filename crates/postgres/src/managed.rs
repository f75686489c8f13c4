//! An external server as a service: its lock is held, and taken again after a restart or failover.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::Condition;
use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::sync::lock;
use tokio::sync::watch;

use crate::error::PostgresError;
use crate::external::ManagedLock;
use crate::lock_owner::LockOwner;

/// How often the connection that holds the lock is tried.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Why the server is not ready while Egret reconnects.
const LOST_REASON: &str = "the connection to the server is lost";

/// The user's own server.
pub struct ManagedServer {
    connection: tokio_postgres::Config,
    owner: Arc<LockOwner>,
    state: Arc<watch::Sender<Readiness>>,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl ManagedServer {
    /// A server whose lock is not taken yet.
    pub fn new(connection: tokio_postgres::Config) -> Self {
        let stopped = Readiness::NotReady("stopped".to_owned());
        Self {
            connection,
            owner: Arc::new(LockOwner::unique()),
            state: Arc::new(watch::Sender::new(stopped)),
            task: Mutex::new(None),
        }
    }

    /// Connection settings of the server.
    pub fn connection(&self) -> &tokio_postgres::Config {
        &self.connection
    }

    /// Completes when the server, which is ready now, does not answer or has lost the lock: the
    /// work of Egret in its sessions must end then.
    pub fn await_loss(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.state.subscribe();
        async move {
            let loss = state.wait_for(|readiness| *readiness != Readiness::Ready);
            let is_unwatched = loss.await.is_err();
            if is_unwatched {
                std::future::pending::<()>().await;
            }
        }
    }

    fn set_task(&self, task: Option<tokio::task::JoinHandle<()>>) {
        let mut slot = lock(&self.task);
        if let Some(old) = std::mem::replace(&mut *slot, task) {
            old.abort();
        }
    }
}

impl Service for ManagedServer {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            let unreachable =
                Condition::new("postgres_unreachable", server_address(&self.connection));
            let lock = match ManagedLock::acquire(&self.connection, &self.owner).await {
                Err(error @ PostgresError::ManagedElsewhere { .. }) => {
                    return Err(StartError {
                        service: "postgres",
                        is_fatal: true,
                        message: error.to_string(),
                    });
                }
                Ok(lock) => {
                    self.state.send_replace(Readiness::Ready);
                    Some(lock)
                }
                Err(error) => {
                    unreachable.fail(&error, "cannot reach the server; retrying until it answers");
                    self.state.send_replace(Readiness::NotReady(error.to_string()));
                    None
                }
            };
            let (connection, owner) = (self.connection.clone(), self.owner.clone());
            let state = self.state.clone();
            self.set_task(Some(tokio::spawn(async move {
                let lock = match lock {
                    Some(lock) => lock,
                    None => {
                        let lock = reacquire_lock(&connection, &owner, &state, &unreachable).await;
                        unreachable.recover("connected to the server and took its lock");
                        state.send_replace(Readiness::Ready);
                        lock
                    }
                };
                watch_lock(lock, &connection, &owner, &state, &unreachable).await;
            })));
            Ok(())
        })
    }

    fn ready(&self) -> Readiness {
        self.state.borrow().clone()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.set_task(None) })
    }
}

/// Address of a server, as a condition's subject.
fn server_address(connection: &tokio_postgres::Config) -> String {
    let port = connection.get_ports().first().copied().unwrap_or(5432);
    match connection.get_hosts().first() {
        Some(tokio_postgres::config::Host::Tcp(host)) => format!("{host}:{port}"),
        _ => format!("local socket, port {port}"),
    }
}

/// Checks the lock for as long as the service runs.
async fn watch_lock(
    mut lock: ManagedLock,
    connection: &tokio_postgres::Config,
    owner: &LockOwner,
    state: &watch::Sender<Readiness>,
    unreachable: &Condition,
) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if lock.is_held().await {
            continue;
        }
        unreachable.fail(
            LOST_REASON,
            "lost the connection that holds the lock against other egrets; reconnecting",
        );
        state.send_replace(Readiness::NotReady(LOST_REASON.to_owned()));
        // The server may answer again at any moment, and would find this connection open.
        drop(lock);
        lock = reacquire_lock(connection, owner, state, unreachable).await;
        unreachable.recover("connected to the server again and took its lock again");
        state.send_replace(Readiness::Ready);
    }
}

/// Retries until the lock is taken; the reason names another Egret that holds it.
async fn reacquire_lock(
    connection: &tokio_postgres::Config,
    owner: &LockOwner,
    state: &watch::Sender<Readiness>,
    unreachable: &Condition,
) -> ManagedLock {
    let taken_over = Condition::new("postgres_taken_over", server_address(connection));
    loop {
        match ManagedLock::acquire(connection, owner).await {
            Ok(lock) => {
                taken_over.recover("no other egret uses this server any more");
                return lock;
            }
            Err(error @ PostgresError::ManagedElsewhere { .. }) => {
                state.send_replace(Readiness::NotReady(error.to_string()));
                taken_over.fail(&error, "another egret has taken over this server");
            }
            Err(error) => {
                // The latest reason is shown; the first one was logged.
                let reason = error.to_string();
                unreachable.begin(&reason);
                let visible_reason = match error {
                    PostgresError::TransactionMode => reason,
                    _ => LOST_REASON.to_owned(),
                };
                state.send_replace(Readiness::NotReady(visible_reason));
            }
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}
