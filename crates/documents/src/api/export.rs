//! Exports of collections: all documents as of one snapshot.

use std::sync::Arc;
use std::time::Duration;

use egret_postgres::tokio_postgres::{Client, Statement};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::caller::{Caller, is_visible};
use super::engine::Documents;
use crate::core::collection::DeclaredCollection;
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{CollectionKey, CollectionName, DocumentNumber};
use crate::store::query::BoundedChunks;
use crate::store::read::{StoredDocument, export_sql};
use crate::worker::query_sessions::QueryPermit;
use crate::worker::session::SESSION_SETTINGS;

/// Documents of a chunk, at most.
const CHUNK_DOCUMENTS_MAX: u32 = 128;

/// How long the last statement may still run on the server after the export was dropped.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the client may pause between two chunks. While an export is open, the server cannot
/// vacuum the rows of deleted documents.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// An export of a collection's documents, in order of creation.
pub struct Export {
    /// None while it is being dropped.
    session: Option<ExportSession>,
    caller: Caller,
    declared: Arc<DeclaredCollection>,
    after: DocumentNumber,
    chunks: BoundedChunks,
}

/// A session in a transaction with one snapshot. Its permit is released only when the server has
/// finished its last statement.
struct ExportSession {
    client: Client,
    statement: Statement,
    _permit: QueryPermit,
}

impl Documents {
    /// Starts an export of all documents of a collection that the caller may read.
    ///
    /// # Errors
    /// [`DocumentsError::Overloaded`]: too many exports are running.
    pub async fn export(
        &self,
        caller: &Caller,
        collection: &CollectionName,
    ) -> Result<Export, DocumentsError> {
        let handle = self.handle(caller).await?;
        let declared = handle.authorized_collection(caller, Action::Read, collection)?;
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let permit = handle.queries.admit_export(&caller.tenant).await?;
        let client = handle.ownership.connect().await?;
        client.batch_execute(SESSION_SETTINGS).await?;
        let idle_ms = IDLE_MAX.as_millis();
        let begin_sql = format!(
            "SET idle_in_transaction_session_timeout = {idle_ms}; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        );
        client.batch_execute(&begin_sql).await?;
        let sql = export_sql(CollectionKey::new(tenant, declared.id));
        let statement = match client.prepare(&sql).await {
            Ok(statement) => statement,
            Err(error) => return Err(handle.ownership.check_removal(error.into()).await),
        };
        let session = ExportSession { statement, client, _permit: permit };
        Ok(Export {
            session: Some(session),
            caller: caller.clone(),
            declared,
            after: DocumentNumber::MIN,
            chunks: BoundedChunks::new(CHUNK_DOCUMENTS_MAX),
        })
    }
}

impl Export {
    /// The next documents, as many as fit into memory; empty at the end.
    pub async fn next(&mut self) -> Result<Vec<StoredDocument>, DocumentsError> {
        loop {
            let mut chunk = self.read_chunk().await?;
            if chunk.is_empty() {
                return Ok(chunk);
            }
            chunk.retain(|stored| is_visible(&self.caller, &self.declared, stored));
            if !chunk.is_empty() {
                return Ok(chunk);
            }
        }
    }

    /// Reads the next chunk, within the limits of [`BoundedChunks`].
    async fn read_chunk(&mut self) -> Result<Vec<StoredDocument>, DocumentsError> {
        let session =
            self.session.as_ref().expect("the session is taken only when the export is dropped");
        let (client, statement) = (&session.client, &session.statement);
        let rows = self.chunks.next(client, statement, &[&self.after]).await?;
        let chunk: Vec<StoredDocument> = rows.iter().map(StoredDocument::from_row).collect();
        if let Some(last) = chunk.last() {
            self.after = last.id.number();
        }
        Ok(chunk)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Without a runtime, the connection is closed too.
        if let (Some(session), Ok(runtime)) = (self.session.take(), Handle::try_current()) {
            runtime.spawn(session.roll_back());
        }
    }
}

impl ExportSession {
    /// Rolls back, which waits until the server has finished the running statement.
    async fn roll_back(self) {
        _ = timeout(ROLLBACK_TIMEOUT, self.client.batch_execute("ROLLBACK")).await;
    }
}
