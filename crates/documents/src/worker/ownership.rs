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
use crate::store::owner::{self, OwnerInfo, Ownership, has_written, own};
use crate::store::{collections, install};

/// Pause before a failed attempt is retried.
const AGAIN: Duration = Duration::from_millis(200);

/// How often a standby checks whether the owner has gone.
const STANDBY: Duration = Duration::from_millis(500);

/// How often the owner checks whether it still holds the lock.
const LOOK: Duration = Duration::from_secs(1);

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
    Gone,
}

pub(crate) struct OwnershipManager {
    pub database: String,
    /// Schedules and executes the writes of this database.
    pub writer: Writer,
    databases: Databases,
    config: DocumentsConfig,
    standing: watch::Sender<OwnershipState>,
    /// Identifies this Egret when it takes the owner's lock.
    lock_owner: LockOwner,
    /// Cached tenant numbers by name.
    tenants: Mutex<BTreeMap<String, TenantId>>,
    /// Condition: documents of the database cannot be written.
    unwritable: Condition,
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
            unwritable: Condition::new("documents_unwritable", database),
            writer,
            databases,
            config,
            standing: watch::Sender::new(OwnershipState::Unknown),
            lock_owner: LockOwner::unique(),
            tenants: Mutex::default(),
        }
    }

    /// Cached tenant numbers by name. They are cleared whenever sessions are lost: the database may
    /// be another one after that.
    pub(crate) fn tenants(&self) -> MutexGuard<'_, BTreeMap<String, TenantId>> {
        lock(&self.tenants)
    }

    pub(crate) fn standing(&self) -> OwnershipState {
        self.standing.borrow().clone()
    }

    /// Acquires ownership and executes writes while it lasts, until shutdown; finishes the writes
    /// in progress.
    pub(crate) async fn keep(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut uncertain = Vec::new();
        let mut standby = Standby::default();
        let mut failing: Option<Instant> = None;
        let owner_timeout = self.config.owner_timeout.duration();
        while !*stopping.borrow() {
            let mut patience = AGAIN;
            // No write starts before this completes. The transaction of another owner can block it
            // indefinitely.
            let owned = tokio::select! {
                _ = stopping.changed() => break,
                owned = self.become_owner(&mut standby, &mut uncertain) => owned,
            };
            let ended = match owned {
                Ok(Some((ownership, sessions))) => {
                    let (begun, replies) = (Instant::now(), self.writer.replies());
                    let sessions = sessions.as_slice();
                    let served = self
                        .serve(&ownership, sessions, &mut uncertain, stopping.clone())
                        .await;
                    // Sessions that fail before they execute a write count as none: the outage goes
                    // on.
                    if self.writer.replies() > replies || begun.elapsed() >= owner_timeout {
                        failing = None;
                    }
                    served
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) => {
                    failing = None;
                    if standby.session.is_some() {
                        patience = STANDBY;
                    }
                }
                Err(error) => {
                    let is_gone = tokio::select! {
                        _ = stopping.changed() => break,
                        is_gone = install::is_gone(&self.databases, &self.database) => is_gone,
                    };
                    if is_gone {
                        self.unwritable.end();
                        self.writer.close(&error);
                        self.standing.send_replace(OwnershipState::Gone);
                        break;
                    }
                    let error = error.of_damaged_schema();
                    self.unwritable
                        .fail(&error, "cannot write documents; retrying");
                    self.standing.send_replace(OwnershipState::Unknown);
                    // A server that restarts, or its replacement, is worth waiting for before
                    // waiting writes are failed.
                    let since = *failing.get_or_insert_with(Instant::now);
                    if since.elapsed() >= owner_timeout {
                        self.writer.reject_queued(&error);
                    }
                }
            }
            tokio::select! {
                _ = stopping.changed() => {}
                () = tokio::time::sleep(patience) => {}
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
            _ => self.client().await?,
        };
        let ownership = match own(session, &self.lock_owner).await? {
            Ok(ownership) => ownership,
            Err((holder, session)) => {
                self.follow(&session, standby).await?;
                // The new owner has begun a later epoch: uncertain writes that did not commit must
                // not be repeated.
                let (epoch, _) = owner::epoch(&session).await?;
                self.resolve_uncertain(&session, uncertain, epoch, FeedPosition::MAX)
                    .await?;
                standby.session = Some(session);
                self.writer.reject_queued(&DocumentsError::OwnedElsewhere {
                    holder: holder.what.clone(),
                });
                self.unwritable
                    .recover("another egret writes the documents");
                self.standing
                    .send_replace(OwnershipState::Elsewhere(holder));
                return Ok(None);
            }
        };
        // Another Egret may have declared collections meanwhile, or the database may have been
        // restored.
        standby.collections = None;
        self.follow(&ownership.session, standby).await?;
        self.writer
            .begin(ownership.epoch, ownership.number, ownership.position);
        // Transactions of the last epoch have committed by now, or never will: their epoch is over.
        let (epoch, forgotten) = (ownership.epoch, ownership.forgotten);
        self.resolve_uncertain(&ownership.session, uncertain, epoch, forgotten)
            .await?;
        // Writes of this epoch or a later one: the database was restored to an earlier state.
        for batch in uncertain.drain(..) {
            self.writer.resolve(batch, UncertainResolution::TooLate);
        }
        // The writes just resolved may have been undone by another owner since.
        self.writer.clear_aliases();
        let mut sessions = Vec::new();
        for _ in 0..self.config.writers.max(1) {
            sessions.push(WriterSession::new(self.client().await?).await?);
        }
        // Without sessions for writing this Egret does not count as owner: waiting writes fail in
        // the end.
        self.standing.send_replace(OwnershipState::Owner);
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
            let written = has_written(session, batch.epoch, batch.number, batch.after).await;
            let resolution = match written {
                Err(error) => {
                    uncertain.push(batch);
                    return Err(error.into());
                }
                Ok(true) => UncertainResolution::Written,
                Ok(false) if batch.epoch.next() == epoch && forgotten <= batch.after => {
                    UncertainResolution::Lost
                }
                Ok(false) => UncertainResolution::TooLate,
            };
            self.writer.resolve(batch, resolution);
        }
        Ok(())
    }

    /// Reloads the catalogue if collections have changed since the last check.
    async fn follow(&self, client: &Client, standby: &mut Standby) -> Result<(), DocumentsError> {
        let state = collections::state(client).await?;
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
    pub(crate) async fn client(&self) -> Result<Client, DocumentsError> {
        Ok(self.databases.client(&self.database).await?)
    }

    /// Executes writes on these sessions until one of them fails, the lock is lost, or shutdown
    /// begins.
    async fn serve(
        &self,
        ownership: &Ownership,
        sessions: &[WriterSession],
        uncertain: &mut Vec<UncertainBatch>,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), DocumentsError> {
        let (epoch, ending) = (ownership.epoch, watch::Sender::new(false));
        let works = sessions.iter().map(|session| {
            let ending = &ending;
            async move {
                let ended = self.writer.run(session, epoch, ending.subscribe()).await;
                ending.send_replace(true);
                ended
            }
        });
        let patience = self.config.owner_timeout.duration();
        let lost = async {
            loop {
                tokio::time::sleep(LOOK).await;
                if !ownership.is_held(patience).await {
                    return;
                }
                // Only now: sessions that fail at their first write do not end the fault.
                self.unwritable.recover("documents can be written again");
            }
        };
        let mut ended = ending.subscribe();
        let session_ended = async {
            while !*ended.borrow() {
                if ended.changed().await.is_err() {
                    return;
                }
            }
        };
        let watching = async {
            tokio::select! {
                () = session_ended => {}
                _ = stopping.changed() => {}
                () = lost => {}
            }
            ending.send_replace(true);
        };
        let (ended, ()) = join(join_all(works), watching).await;
        let mut failed = Ok(());
        for ended in ended {
            match ended {
                Ok(()) => {}
                Err(SessionEnd::Lost(error)) => failed = Err(error),
                Err(SessionEnd::Uncertain(batch)) => {
                    failed = Err(batch.error.clone());
                    uncertain.push(batch);
                }
            }
        }
        failed
    }
}
