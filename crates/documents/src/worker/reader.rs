//! Reads documents: those that are asked for while the last answer was on its way are one question.

use std::sync::Arc;
use std::time::Duration;

use egret_postgres::Databases;
use egret_postgres::slots::{Slot, TenantSlots};
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use super::session::Session;
use crate::error::DocumentsError;
use crate::model::{CollectionId, DocumentId, TenantId};
use crate::store::install;
use crate::store::read::Stored;

/// Documents that one question asks for, at most.
const TOGETHER_MAX: usize = 256;

/// The setting that bounds what waits.
pub(super) const WAITING_MAX: &str = "documents.waiting_max";

/// How soon a connection that failed is tried again.
const AGAIN: Duration = Duration::from_millis(200);

type Answer = Result<Option<Stored>, DocumentsError>;

/// A document that is asked for.
struct Asked {
    tenant: TenantId,
    collection: CollectionId,
    number: i64,
    reply: oneshot::Sender<Answer>,
    /// Its place among those that wait.
    place: Slot<TenantId>,
}

impl Asked {
    fn answer(self, answer: Answer) {
        // The next question of whoever has asked finds room.
        drop(self.place);
        _ = self.reply.send(answer);
    }
}

/// See the module.
pub struct Reader {
    database: String,
    databases: Databases,
    asked: mpsc::Sender<Asked>,
    waiting: Mutex<mpsc::Receiver<Asked>>,
    places: TenantSlots<TenantId>,
}

impl Reader {
    /// For a database.
    pub fn new(database: &str, databases: Databases, waiting_max: u32) -> Self {
        let (asked, waiting) = mpsc::channel(waiting_max.max(1) as usize);
        Self {
            database: database.to_owned(),
            databases,
            asked,
            waiting: Mutex::new(waiting),
            places: TenantSlots::new(WAITING_MAX, waiting_max),
        }
    }

    /// A document, if it is there.
    ///
    /// # Errors
    /// What the server says, and that too many wait.
    pub async fn read(
        &self,
        (tenant, collection): (TenantId, CollectionId),
        id: DocumentId,
    ) -> Answer {
        let (reply, answer) = oneshot::channel();
        let number = id.number();
        let asked = Asked {
            tenant,
            collection,
            number,
            reply,
            place: self.places.try_take(tenant)?,
        };
        // There is room for each that has a place.
        if self.asked.send(asked).await.is_err() {
            return Err(DocumentsError::Stopping);
        }
        let found = answer.await.unwrap_or(Err(DocumentsError::Stopping))?;
        // The other half of an id is a secret that the number does not tell.
        Ok(found.filter(|found| found.id == id))
    }

    /// Answers by a session of its own until everything stops.
    pub async fn answer(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut session = None;
        while !*stopping.borrow() {
            // A table may be locked for any time: whoever waits for an answer is told then that everything stops.
            tokio::select! {
                _ = stopping.changed() => break,
                () = self.answer_next(&mut session) => {}
            }
        }
        self.close().await;
    }

    /// Answers what is asked next.
    async fn answer_next(&self, session: &mut Option<Session>) {
        let mut together = Vec::new();
        self.next(&mut together).await;
        let connected = match session.take() {
            Some(connected) => Ok(connected),
            None => self.connect().await,
        };
        let connected = match connected {
            Ok(connected) => session.insert(connected),
            Err(error) => {
                // Documents that were removed are not reached later either.
                let reason = if error.is_removed() {
                    self.check_removal(error).await
                } else {
                    DocumentsError::Unreachable
                };
                for asked in together {
                    asked.answer(Err(reason.clone()));
                }
                return tokio::time::sleep(AGAIN).await;
            }
        };
        let tenants: Vec<i32> = together.iter().map(|one| one.tenant.0).collect();
        let collections: Vec<i32> = together.iter().map(|one| one.collection.0).collect();
        let numbers: Vec<i64> = together.iter().map(|one| one.number).collect();
        match connected
            .by_number((&tenants, &collections, &numbers))
            .await
        {
            Ok(found) => {
                for (asked, found) in together.into_iter().zip(found) {
                    asked.answer(Ok(found));
                }
            }
            Err(error) => {
                *session = None;
                let error = self.check_removal(error).await;
                for asked in together {
                    asked.answer(Err(error.clone()));
                }
            }
        }
    }

    /// See [`install::check_removal`].
    async fn check_removal(&self, error: DocumentsError) -> DocumentsError {
        install::check_removal(error, &self.databases, &self.database).await
    }

    /// Nobody answers any more.
    async fn close(&self) {
        let mut waiting = self.waiting.lock().await;
        waiting.close();
        while let Ok(asked) = waiting.try_recv() {
            asked.answer(Err(DocumentsError::Stopping));
        }
    }

    async fn next(&self, together: &mut Vec<Asked>) {
        self.waiting
            .lock()
            .await
            .recv_many(together, TOGETHER_MAX)
            .await;
    }

    async fn connect(&self) -> Result<Session, DocumentsError> {
        Session::new(self.databases.client(&self.database).await?).await
    }
}
