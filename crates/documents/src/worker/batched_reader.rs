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
const BATCH_DOCUMENTS_MAX: usize = 256;

/// Name of the setting that limits the queue.
pub(super) const WAITING_MAX_SETTING: &str = "documents.waiting_max";

/// Pause after a failed connection attempt.
const RECONNECT_DELAY: Duration = Duration::from_millis(200);

type ReadResult = Result<Option<StoredDocument>, DocumentsError>;

/// A queued read of one document.
struct ReadRequest {
    tenant: TenantId,
    collection: CollectionId,
    number: DocumentNumber,
    reply: oneshot::Sender<ReadResult>,
    /// Its slot in the queue.
    slot: Slot<TenantId>,
}

impl ReadRequest {
    fn send_reply(self, answer: ReadResult) {
        // Free the slot first: the caller's next request must find room.
        drop(self.slot);
        _ = self.reply.send(answer);
    }
}

pub(crate) struct BatchedReader {
    database: String,
    databases: Databases,
    request_sender: mpsc::Sender<ReadRequest>,
    request_receiver: Mutex<mpsc::Receiver<ReadRequest>>,
    slots: TenantSlots<TenantId>,
}

impl BatchedReader {
    pub(crate) fn new(database: &str, databases: Databases, waiting_max: u32) -> Self {
        let (request_sender, request_receiver) = mpsc::channel(waiting_max.max(1) as usize);
        Self {
            database: database.to_owned(),
            databases,
            request_sender,
            request_receiver: Mutex::new(request_receiver),
            slots: TenantSlots::new(WAITING_MAX_SETTING, waiting_max),
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
        let (reply, result) = oneshot::channel();
        let number = id.number();
        let request =
            ReadRequest { tenant, collection, number, reply, slot: self.slots.try_take(tenant)? };
        // The channel holds as many requests as there are slots, so it can only be closed.
        if self.request_sender.try_send(request).is_err() {
            return Err(DocumentsError::Stopping);
        }
        let document = result.await.unwrap_or(Err(DocumentsError::Stopping))?;
        // The number is only half of the id: the rest must match too.
        Ok(document.filter(|found| found.id == id))
    }

    /// Executes queued reads on a session of its own, until shutdown.
    pub(crate) async fn run(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut session = None;
        let reading = async {
            loop {
                self.execute_batch(&mut session).await;
            }
        };
        // Shutdown interrupts a running query, which a table lock may block indefinitely.
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => {}
            () = reading => {}
        }
        self.close().await;
    }

    /// Executes the next batch of reads.
    async fn execute_batch(&self, session: &mut Option<WriterSession>) {
        let mut batch = Vec::new();
        self.receive_batch(&mut batch).await;
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
                for asked in batch {
                    asked.send_reply(Err(reason.clone()));
                }
                return tokio::time::sleep(RECONNECT_DELAY).await;
            }
        };
        let (mut parts, mut last_error) = (vec![batch], None);
        while let Some(mut part) = parts.pop() {
            let tenants: Vec<TenantId> = part.iter().map(|request| request.tenant).collect();
            let collections: Vec<CollectionId> =
                part.iter().map(|request| request.collection).collect();
            let numbers: Vec<DocumentNumber> = part.iter().map(|request| request.number).collect();
            let rows = connected.by_number(NumberKeys {
                tenants: &tenants,
                collections: &collections,
                numbers: &numbers,
            });
            match rows.await {
                Ok(documents) => {
                    for (asked, document) in part.into_iter().zip(documents) {
                        asked.send_reply(Ok(document));
                    }
                }
                // The server may fail to read one of them, and read the others.
                Err(error) if part.len() > 1 && !error.is_session_lost() && !error.is_removed() => {
                    let second_half = part.split_off(part.len() / 2);
                    parts.extend([second_half, part]);
                }
                Err(error) => {
                    if last_error.is_none() || error.is_session_lost() || error.is_removed() {
                        last_error = Some(error.clone());
                    }
                    let error = self.check_removal(error).await;
                    for asked in part {
                        asked.send_reply(Err(error.clone()));
                    }
                }
            }
        }
        if let Some(error) = last_error
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
        let mut requests = self.request_receiver.lock().await;
        requests.close();
        while let Ok(request) = requests.try_recv() {
            request.send_reply(Err(DocumentsError::Stopping));
        }
    }

    async fn receive_batch(&self, batch: &mut Vec<ReadRequest>) {
        self.request_receiver.lock().await.recv_many(batch, BATCH_DOCUMENTS_MAX).await;
    }

    async fn connect(&self) -> Result<WriterSession, DocumentsError> {
        WriterSession::new(self.databases.client(&self.database).await?).await
    }
}
