//! Ownership of the documents of one database: whether this Egret writes them, and its sessions for
//! that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use egret_base::Condition;
use egret_base::sync::lock;
use egret_postgres::Databases;
use egret_postgres::lock_owner::LockOwner;
use egret_postgres::tokio_postgres::Client;
use futures_util::future::{join, join_all};
use tokio::sync::watch;
use tokio::time::Instant;

use super::catalogue::Catalogue;
use super::commit::batch::{SessionEnd, UncertainBatch, UncertainResolution};
use super::commit::writer::Writer;
use super::session::WriterSession;
use crate::config::DocumentsConfig;
use crate::error::DocumentsError;
use crate::model::{Epoch, FeedPosition, TenantId};
use crate::store::owner::{self, OwnerInfo, Ownership, acquire, is_committed};
use crate::store::query_values::sync_paths;
use crate::store::{collections, install};

/// Pause before a failed attempt is retried.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// How often a standby checks whether the owner has gone.
const STANDBY_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// How often the owner checks whether it still holds the lock.
const LOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Ownership of a database's documents, as this Egret sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnershipState {
    /// Not determined yet, or the connection was lost.
    Unknown,
    /// This Egret is the owner and writes them.
    Owner,
    /// Another Egret is the owner.
    Elsewhere(OwnerInfo),
    /// The engine's schema was removed: there are no documents, and no owner.
    Removed,
}

pub(crate) struct OwnershipManager {
    pub database: String,
    /// Schedules and executes the writes of this database.
    pub writer: Writer,
    databases: Databases,
    config: DocumentsConfig,
    state: watch::Sender<OwnershipState>,
    /// Identifies this Egret when it takes the owner's lock.
    lock_owner: LockOwner,
    /// Cached tenant numbers by name.
    tenants: Mutex<BTreeMap<String, TenantId>>,
    /// Condition: documents of the database cannot be written.
    write_condition: Condition,
}

/// State that a standby keeps between its checks.
#[derive(Default)]
struct Standby {
    session: Option<Client>,
    /// State of the collections table at the last check; none: never checked.
    collections: Option<(i64, i64)>,
}

impl OwnershipManager {
    pub(crate) fn new(
        database: &str,
        databases: Databases,
        config: DocumentsConfig,
        writer: Writer,
    ) -> Self {
        Self {
            database: database.to_owned(),
            write_condition: Condition::new("documents_unwritable", database),
            writer,
            databases,
            config,
            state: watch::Sender::new(OwnershipState::Unknown),
            lock_owner: LockOwner::unique(),
            tenants: Mutex::default(),
        }
    }

    /// Cached tenant numbers by name. They are cleared whenever sessions are lost: the database may
    /// be another one after that.
    pub(crate) fn tenants(&self) -> MutexGuard<'_, BTreeMap<String, TenantId>> {
        lock(&self.tenants)
    }

    pub(crate) fn state(&self) -> OwnershipState {
        self.state.borrow().clone()
    }

    /// Acquires ownership and executes writes while it lasts, until shutdown; finishes the writes
    /// in progress.
    pub(crate) async fn run(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut uncertain = Vec::new();
        let mut standby = Standby::default();
        let mut failing_since: Option<Instant> = None;
        let owner_timeout = self.config.owner_timeout.duration();
        while !*stopping.borrow() {
            let mut delay = RETRY_DELAY;
            // No write starts before this completes. The transaction of another owner can block it
            // indefinitely.
            let acquired = tokio::select! {
                _ = stopping.changed() => break,
                owned = self.become_owner(&mut standby, &mut uncertain) => owned,
            };
            let result = match acquired {
                Ok(Some((ownership, sessions))) => {
                    let (started, replies_before) = (Instant::now(), self.writer.reply_count());
                    let sessions = sessions.as_slice();
                    let serve_result = self
                        .run_sessions(&ownership, sessions, &mut uncertain, stopping.clone())
                        .await;
                    // Sessions that fail before they execute a write count as none: the outage goes
                    // on.
                    if self.writer.reply_count() > replies_before
                        || started.elapsed() >= owner_timeout
                    {
                        failing_since = None;
                    }
                    serve_result
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            match result {
                Ok(()) => {
                    failing_since = None;
                    if standby.session.is_some() {
                        delay = STANDBY_CHECK_INTERVAL;
                    }
                }
                Err(error) => {
                    let is_removed = tokio::select! {
                        _ = stopping.changed() => break,
                        is_gone = install::is_removed(&self.databases, &self.database) => is_gone,
                    };
                    if is_removed {
                        self.write_condition.end();
                        self.writer.close(&error);
                        self.state.send_replace(OwnershipState::Removed);
                        break;
                    }
                    let error = error.into_damaged_schema();
                    self.write_condition.fail(&error, "cannot write documents; retrying");
                    self.state.send_replace(OwnershipState::Unknown);
                    // A server that restarts, or its replacement, is worth waiting for before
                    // waiting writes are failed.
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= owner_timeout {
                        self.writer.reject_queued(&error);
                    }
                }
            }
            tokio::select! {
                _ = stopping.changed() => {}
                () = tokio::time::sleep(delay) => {}
            }
        }
        self.writer.close(&DocumentsError::Stopping);
    }

    /// Tries to become the owner and to open the configured number of write sessions. Returns none
    /// while another Egret is the owner.
    async fn become_owner(
        &self,
        standby: &mut Standby,
        uncertain: &mut Vec<UncertainBatch>,
    ) -> Result<Option<(Ownership, Vec<WriterSession>)>, DocumentsError> {
        self.tenants().clear();
        let session = match standby.session.take() {
            Some(session) if !session.is_closed() => session,
            _ => self.connect().await?,
        };
        let ownership = match acquire(session, &self.lock_owner).await? {
            Ok(ownership) => ownership,
            Err((holder, session)) => {
                self.refresh_catalogue(&session, standby).await?;
                // The new owner has begun a later epoch: uncertain writes that did not commit must
                // not be repeated.
                let (epoch, _) = owner::read_epoch(&session).await?;
                self.resolve_uncertain(&session, uncertain, epoch, FeedPosition::MAX).await?;
                standby.session = Some(session);
                self.writer.reject_queued(&DocumentsError::OwnedElsewhere {
                    holder: holder.description.clone(),
                });
                self.write_condition.recover("another egret writes the documents");
                self.state.send_replace(OwnershipState::Elsewhere(holder));
                return Ok(None);
            }
        };
        // Another Egret may have declared collections meanwhile, or the database may have been
        // restored.
        standby.collections = None;
        self.refresh_catalogue(&ownership.session, standby).await?;
        // No write is in progress: those of earlier epochs cannot commit any more.
        let query_paths = self.writer.catalogue().query_paths();
        sync_paths(&ownership.session, &query_paths).await?;
        self.writer.begin_epoch(ownership.epoch, ownership.number, ownership.position);
        // Transactions of the last epoch have committed by now, or never will: their epoch is over.
        let (epoch, forgotten) = (ownership.epoch, ownership.forgotten);
        self.resolve_uncertain(&ownership.session, uncertain, epoch, forgotten).await?;
        // Writes of this epoch or a later one: the database was restored to an earlier state.
        for batch in uncertain.drain(..) {
            self.writer.resolve_uncertain(batch, UncertainResolution::Superseded);
        }
        // The writes just resolved may have been undone by another owner since.
        self.writer.clear_aliases();
        let mut sessions = Vec::new();
        for _ in 0..self.config.writers.max(1) {
            sessions.push(WriterSession::new(self.connect().await?).await?);
        }
        // Without sessions for writing this Egret does not count as owner: waiting writes fail in
        // the end.
        self.state.send_replace(OwnershipState::Owner);
        Ok(Some((ownership, sessions)))
    }

    /// Resolves writes with an uncertain outcome, once their epoch has been succeeded by this one.
    async fn resolve_uncertain(
        &self,
        session: &Client,
        uncertain: &mut Vec<UncertainBatch>,
        epoch: Epoch,
        forgotten: FeedPosition,
    ) -> Result<(), DocumentsError> {
        while let Some(batch) = uncertain.pop_if(|batch| batch.epoch < epoch) {
            let written =
                is_committed(session, batch.epoch, batch.number, batch.previous_position).await;
            let resolution = match written {
                Err(error) => {
                    uncertain.push(batch);
                    return Err(error.into());
                }
                Ok(true) => UncertainResolution::Written,
                Ok(false)
                    if batch.epoch.next() == epoch && forgotten <= batch.previous_position =>
                {
                    UncertainResolution::NotWritten
                }
                Ok(false) => UncertainResolution::Superseded,
            };
            self.writer.resolve_uncertain(batch, resolution);
        }
        Ok(())
    }

    /// Reloads the catalogue if collections have changed since the last check.
    async fn refresh_catalogue(
        &self,
        client: &Client,
        standby: &mut Standby,
    ) -> Result<(), DocumentsError> {
        let state = collections::fingerprint(client).await?;
        if standby.collections != Some(state) {
            let catalogue = Catalogue::read(client).await?;
            self.writer.set_catalogue(Arc::new(catalogue));
            standby.collections = Some(state);
        }
        Ok(())
    }

    pub(crate) async fn check_removal(&self, error: DocumentsError) -> DocumentsError {
        install::check_removal(error, &self.databases, &self.database).await
    }

    /// Opens a session in the database.
    pub(crate) async fn connect(&self) -> Result<Client, DocumentsError> {
        Ok(self.databases.client(&self.database).await?)
    }

    /// Executes writes on these sessions until one of them fails, the lock is lost, or shutdown
    /// begins.
    async fn run_sessions(
        &self,
        ownership: &Ownership,
        sessions: &[WriterSession],
        uncertain: &mut Vec<UncertainBatch>,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), DocumentsError> {
        let (epoch, stop_signal) = (ownership.epoch, watch::Sender::new(false));
        let session_tasks = sessions.iter().map(|session| {
            let ending = &stop_signal;
            async move {
                let session_end = self.writer.run(session, epoch, ending.subscribe()).await;
                ending.send_replace(true);
                session_end
            }
        });
        let timeout = self.config.owner_timeout.duration();
        let ownership_lost = async {
            loop {
                tokio::time::sleep(LOCK_CHECK_INTERVAL).await;
                if !ownership.is_held(timeout).await {
                    return;
                }
                // Only now: sessions that fail at their first write do not end the fault.
                self.write_condition.recover("documents can be written again");
            }
        };
        let mut stop_receiver = stop_signal.subscribe();
        let session_ended = async {
            while !*stop_receiver.borrow() {
                if stop_receiver.changed().await.is_err() {
                    return;
                }
            }
        };
        let supervision = async {
            tokio::select! {
                () = session_ended => {}
                _ = stopping.changed() => {}
                () = ownership_lost => {}
            }
            stop_signal.send_replace(true);
        };
        let (session_ends, ()) = join(join_all(session_tasks), supervision).await;
        let mut result = Ok(());
        for ended in session_ends {
            match ended {
                Ok(()) => {}
                Err(SessionEnd::Lost(error)) => result = Err(error),
                Err(SessionEnd::Uncertain(batch)) => {
                    result = Err(batch.error.clone());
                    uncertain.push(batch);
                }
            }
        }
        result
    }
}
