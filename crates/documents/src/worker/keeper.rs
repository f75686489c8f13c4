//! The documents of one database: whether this Egret is the one that writes them, and the sessions by which it does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use egret_base::Condition;
use egret_postgres::Databases;
use egret_postgres::lock_owner::LockOwner;
use egret_postgres::tokio_postgres::Client;
use futures_util::future::{join, join_all};
use tokio::sync::watch;
use tokio::time::Instant;

use super::catalogue::Catalogue;
use super::session::Session;
use super::writer::{Ended, FoundOut, Unknown, Writer};
use crate::config::DocumentsConfig;
use crate::error::DocumentsError;
use crate::model::TenantId;
use crate::store::owner::{self, Holder, Ownership, has_written, own};
use crate::store::{collections, install};

/// How soon is tried again what failed.
const AGAIN: Duration = Duration::from_millis(200);

/// How often it is looked whether another Egret that writes has gone.
const STANDBY: Duration = Duration::from_millis(500);

/// How often it is looked whether the lock is still held.
const LOOK: Duration = Duration::from_secs(1);

/// Whether this Egret writes documents in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// That is not known yet, or not any more.
    Unknown,
    /// It does.
    Owner,
    /// Another one does.
    Elsewhere(Holder),
    /// Nobody does: there are no documents any more.
    Gone,
}

/// See the module.
pub struct Keeper {
    /// The database.
    pub database: String,
    /// What waits to be written, and is.
    pub writer: Writer,
    databases: Databases,
    config: DocumentsConfig,
    standing: watch::Sender<Standing>,
    /// Who has the lock of the owner of documents.
    lock_owner: LockOwner,
    /// The tenants that are known.
    tenants: Mutex<BTreeMap<String, TenantId>>,
    /// Documents of the database cannot be written.
    unwritable: Condition,
}

/// What an Egret keeps that does not write.
#[derive(Default)]
struct Standby {
    session: Option<Client>,
    /// What the collections were when it was looked last.
    collections: Option<(i64, i64)>,
}

impl Keeper {
    /// For a database.
    pub fn new(
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
            standing: watch::Sender::new(Standing::Unknown),
            lock_owner: LockOwner::unique(),
            tenants: Mutex::default(),
        }
    }

    /// The tenants that are known, by their names. They are forgotten when sessions are lost: the database may be another by then.
    pub fn tenants(&self) -> MutexGuard<'_, BTreeMap<String, TenantId>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this Egret writes here.
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Writes what is to be written, as long as this Egret may, until everything stops. What is under way then is finished.
    pub async fn keep(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut unknown = Vec::new();
        let mut standby = Standby::default();
        let mut failing: Option<Instant> = None;
        while !*stopping.borrow() {
            let mut patience = AGAIN;
            // Nothing is written before this is through; another's transaction may hold it up for any time.
            let owned = tokio::select! {
                _ = stopping.changed() => break,
                owned = self.become_owner(&mut standby, &mut unknown) => owned,
            };
            let ended = match owned {
                Ok(Some((ownership, sessions))) => {
                    let sessions = sessions.as_slice();
                    self.serve((&ownership, sessions), &mut unknown, stopping.clone())
                        .await
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
                        self.standing.send_replace(Standing::Gone);
                        break;
                    }
                    let error = error.of_damaged_schema();
                    self.unwritable
                        .fail(&error, "documents cannot be written; retrying");
                    if self.standing.send_replace(Standing::Unknown) == Standing::Owner {
                        failing = None;
                    }
                    // A server that starts anew, or another that takes its place, is worth to be waited for.
                    let since = *failing.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.config.owner_timeout.duration() {
                        self.writer.give_up(&error);
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

    /// Becomes the owner, if nobody else is, with as many sessions to write by as are configured.
    async fn become_owner(
        &self,
        standby: &mut Standby,
        unknown: &mut Vec<Unknown>,
    ) -> Result<Option<(Ownership, Vec<Session>)>, DocumentsError> {
        self.tenants().clear();
        let session = match standby.session.take() {
            Some(session) if !session.is_closed() => session,
            _ => self.client().await?,
        };
        let ownership = match own(session, &self.lock_owner).await? {
            Ok(ownership) => ownership,
            Err((holder, session)) => {
                self.follow(&session, standby).await?;
                // Whoever writes now begins where this one has ended: nothing of what is unknown is done again.
                let (epoch, _) = owner::epoch(&session).await?;
                self.find_out(&session, unknown, (epoch, i64::MAX)).await?;
                standby.session = Some(session);
                self.writer.give_up(&DocumentsError::OwnedElsewhere {
                    holder: holder.what.clone(),
                });
                self.unwritable
                    .recover("documents are written by another egret");
                self.standing.send_replace(Standing::Elsewhere(holder));
                return Ok(None);
            }
        };
        // Another Egret may have declared others until now, and the database may have been restored.
        standby.collections = None;
        self.follow(&ownership.session, standby).await?;
        self.writer
            .begin(ownership.epoch, ownership.number, ownership.position);
        // What was under way has committed by now, or never will: its epoch is over.
        let state = (ownership.epoch, ownership.forgotten);
        self.find_out(&ownership.session, unknown, state).await?;
        // An epoch that is not over is of a database that was restored to what it was before.
        for one in unknown.drain(..) {
            self.writer.found_out(one.steps, FoundOut::TooLate);
        }
        // Others may have removed since what has just been found out to be written.
        self.writer.forget_names();
        self.unwritable.recover("documents can be written again");
        self.standing.send_replace(Standing::Owner);
        let mut sessions = Vec::new();
        for _ in 0..self.config.writers.max(1) {
            sessions.push(Session::new(self.client().await?).await?);
        }
        Ok(Some((ownership, sessions)))
    }

    /// Finds out what became of writes of which that is not known, now that somebody has this epoch.
    async fn find_out(
        &self,
        session: &Client,
        unknown: &mut Vec<Unknown>,
        (epoch, forgotten): (i64, i64),
    ) -> Result<(), DocumentsError> {
        while let Some(one) = unknown.pop_if(|one| one.epoch < epoch) {
            let written = has_written(session, (one.epoch, one.group), one.after).await;
            let outcome = match written {
                Err(error) => {
                    unknown.push(one);
                    return Err(error.into());
                }
                Ok(true) => FoundOut::Written,
                Ok(false) if one.epoch + 1 == epoch && forgotten <= one.after => FoundOut::Lost,
                Ok(false) => FoundOut::TooLate,
            };
            self.writer.found_out(one.steps, outcome);
        }
        Ok(())
    }

    /// The collections are those that the database has, if these have changed since it was looked last.
    async fn follow(&self, client: &Client, standby: &mut Standby) -> Result<(), DocumentsError> {
        let state = collections::state(client).await?;
        if standby.collections != Some(state) {
            let catalogue = Catalogue::read(client).await?;
            self.writer.set_catalogue(Arc::new(catalogue));
            standby.collections = Some(state);
        }
        Ok(())
    }

    /// See [`install::check_removal`].
    pub async fn check_removal(&self, error: DocumentsError) -> DocumentsError {
        install::check_removal(error, &self.databases, &self.database).await
    }

    /// A session in the database.
    ///
    /// # Errors
    /// It cannot be had.
    pub async fn client(&self) -> Result<Client, DocumentsError> {
        Ok(self.databases.client(&self.database).await?)
    }

    /// Writes by these sessions, until one of them fails, the lock is lost, or everything stops.
    async fn serve(
        &self,
        (ownership, sessions): (&Ownership, &[Session]),
        unknown: &mut Vec<Unknown>,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), DocumentsError> {
        let (epoch, ending) = (ownership.epoch, watch::Sender::new(false));
        let works = sessions.iter().map(|session| {
            let ending = &ending;
            async move {
                let ended = self.writer.work(session, epoch, ending.subscribe()).await;
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
                Err(Ended::Session(error)) => failed = Err(error),
                Err(Ended::Unknown(one)) => unknown.push(one),
            }
        }
        failed
    }
}
