//! Batched reads of documents by id: requests that arrive while a query runs share the next one.

use std::sync::Arc;
use std::time::Duration;

use egret_postgres::Databases;
use egret_postgres::slots::{Slot, TenantSlots};
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use super::session::WriterSession;
use crate::error::DocumentsError;
use crate::model::{CollectionId, DocumentId, DocumentNumber, TenantId};
use crate::store::install;
use crate::store::read::{NumberKeys, StoredDocument};

/// Documents of one query, at most.
const TOGETHER_MAX: usize = 256;

/// Name of the setting that limits the queue.
pub(super) const WAITING_MAX: &str = "documents.waiting_max";

/// Pause after a failed connection attempt.
const AGAIN: Duration = Duration::from_millis(200);

type ReadResult = Result<Option<StoredDocument>, DocumentsError>;

/// A queued read of one document.
struct ReadRequest {
    tenant: TenantId,
    collection: CollectionId,
    number: DocumentNumber,
    reply: oneshot::Sender<ReadResult>,
    /// Its slot in the queue.
    place: Slot<TenantId>,
}

impl ReadRequest {
    fn answer(self, answer: ReadResult) {
        // Free the slot first: the caller's next request must find room.
        drop(self.place);
        _ = self.reply.send(answer);
    }
}

pub(crate) struct BatchedReader {
    database: String,
    databases: Databases,
    asked: mpsc::Sender<ReadRequest>,
    waiting: Mutex<mpsc::Receiver<ReadRequest>>,
    places: TenantSlots<TenantId>,
}

impl BatchedReader {
    pub(crate) fn new(database: &str, databases: Databases, waiting_max: u32) -> Self {
        let (asked, waiting) = mpsc::channel(waiting_max.max(1) as usize);
        Self {
            database: database.to_owned(),
            databases,
            asked,
            waiting: Mutex::new(waiting),
            places: TenantSlots::new(WAITING_MAX, waiting_max),
        }
    }

    /// Reads a document, if there is one.
    ///
    /// # Errors
    /// [`DocumentsError::Overloaded`]: too many reads are queued.
    pub(crate) async fn read(
        &self,
        tenant: TenantId,
        collection: CollectionId,
        id: DocumentId,
    ) -> ReadResult {
        let (reply, answer) = oneshot::channel();
        let number = id.number();
        let asked = ReadRequest {
            tenant,
            collection,
            number,
            reply,
            place: self.places.try_take(tenant)?,
        };
        // The channel holds as many requests as there are slots, so it can only be closed.
        if self.asked.try_send(asked).is_err() {
            return Err(DocumentsError::Stopping);
        }
        let found = answer.await.unwrap_or(Err(DocumentsError::Stopping))?;
        // The number is only half of the id: the rest must match too.
        Ok(found.filter(|found| found.id == id))
    }

    /// Executes queued reads on a session of its own, until shutdown.
    pub(crate) async fn answer(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut session = None;
        let answering = async {
            loop {
                self.answer_next(&mut session).await;
            }
        };
        // Shutdown interrupts a running query, which a table lock may block indefinitely.
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => {}
            () = answering => {}
        }
        self.close().await;
    }

    /// Executes the next batch of reads.
    async fn answer_next(&self, session: &mut Option<WriterSession>) {
        let mut together = Vec::new();
        self.next(&mut together).await;
        let connected = match session.take() {
            Some(connected) => Ok(connected),
            None => self.connect().await,
        };
        let connected = match connected {
            Ok(connected) => session.insert(connected),
            Err(error) => {
                // Documents that were removed cannot be reached later either: report that instead.
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
        let (mut parts, mut failed) = (vec![together], None);
        while let Some(mut part) = parts.pop() {
            let tenants: Vec<TenantId> = part.iter().map(|request| request.tenant).collect();
            let collections: Vec<CollectionId> =
                part.iter().map(|request| request.collection).collect();
            let numbers: Vec<DocumentNumber> = part.iter().map(|request| request.number).collect();
            let found = connected.by_number(NumberKeys {
                tenants: &tenants,
                collections: &collections,
                numbers: &numbers,
            });
            match found.await {
                Ok(found) => {
                    for (asked, found) in part.into_iter().zip(found) {
                        asked.answer(Ok(found));
                    }
                }
                // The server may fail to read one of them, and read the others.
                Err(error) if part.len() > 1 && !error.is_of_session() && !error.is_removed() => {
                    let other = part.split_off(part.len() / 2);
                    parts.extend([other, part]);
                }
                Err(error) => {
                    if failed.is_none() || error.is_of_session() || error.is_removed() {
                        failed = Some(error.clone());
                    }
                    let error = self.check_removal(error).await;
                    for asked in part {
                        asked.answer(Err(error.clone()));
                    }
                }
            }
        }
        if let Some(error) = failed
            && !connected.is_usable_after(&error).await
        {
            *session = None;
        }
    }

    async fn check_removal(&self, error: DocumentsError) -> DocumentsError {
        install::check_removal(error, &self.databases, &self.database).await
    }

    /// Rejects all queued and later reads.
    async fn close(&self) {
        let mut waiting = self.waiting.lock().await;
        waiting.close();
        while let Ok(asked) = waiting.try_recv() {
            asked.answer(Err(DocumentsError::Stopping));
        }
    }

    async fn next(&self, together: &mut Vec<ReadRequest>) {
        self.waiting
            .lock()
            .await
            .recv_many(together, TOGETHER_MAX)
            .await;
    }

    async fn connect(&self) -> Result<WriterSession, DocumentsError> {
        WriterSession::new(self.databases.client(&self.database).await?).await
    }
}
