//! Exports of collections: all documents as of one snapshot.

use std::sync::Arc;
use std::time::Duration;

use egret_postgres::tokio_postgres::{Client, Statement};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::caller::{Caller, is_seen};
use super::engine::Documents;
use crate::core::collection::DeclaredCollection;
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{CollectionKey, CollectionName, DocumentNumber};
use crate::store::query::BoundedChunks;
use crate::store::read::{StoredDocument, export_sql};
use crate::worker::query_sessions::QueryPermit;
use crate::worker::session::SETTINGS;

/// Documents of a chunk, at most.
const TOGETHER_MAX: u32 = 128;

/// How long the last statement may still run on the server after the export was dropped.
const PATIENCE: Duration = Duration::from_secs(10);

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
    portions: BoundedChunks,
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
        let declared = handle.declared(caller, Action::Read, collection)?;
        let tenant = self.tenant(&handle, &caller.tenant).await?;
        let permit = handle.queries.export(&caller.tenant).await?;
        let client = handle.ownership.client().await?;
        client.batch_execute(SETTINGS).await?;
        let idle_ms = IDLE_MAX.as_millis();
        let begin = format!(
            "SET idle_in_transaction_session_timeout = {idle_ms}; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        );
        client.batch_execute(&begin).await?;
        let sql = export_sql(CollectionKey::new(tenant, declared.id));
        let statement = match client.prepare(&sql).await {
            Ok(statement) => statement,
            Err(error) => return Err(handle.ownership.check_removal(error.into()).await),
        };
        let session = ExportSession {
            statement,
            client,
            _permit: permit,
        };
        Ok(Export {
            session: Some(session),
            caller: caller.clone(),
            declared,
            after: DocumentNumber::MIN,
            portions: BoundedChunks::new(TOGETHER_MAX),
        })
    }
}

impl Export {
    /// The next documents, as many as fit into memory; empty at the end.
    pub async fn next(&mut self) -> Result<Vec<StoredDocument>, DocumentsError> {
        loop {
            let mut page = self.portion().await?;
            if page.is_empty() {
                return Ok(page);
            }
            page.retain(|stored| is_seen(&self.caller, &self.declared, stored));
            if !page.is_empty() {
                return Ok(page);
            }
        }
    }

    /// Reads the next chunk, within the limits of [`BoundedChunks`].
    async fn portion(&mut self) -> Result<Vec<StoredDocument>, DocumentsError> {
        let session = self
            .session
            .as_ref()
            .expect("the session is taken only when the export is dropped");
        let (client, statement) = (&session.client, &session.statement);
        let rows = self
            .portions
            .next(client, statement, &[&self.after])
            .await?;
        let page: Vec<StoredDocument> = rows.iter().map(StoredDocument::of).collect();
        if let Some(last) = page.last() {
            self.after = last.id.number();
        }
        Ok(page)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Without a runtime, the connection is closed too.
        if let (Some(session), Ok(runtime)) = (self.session.take(), Handle::try_current()) {
            runtime.spawn(session.end());
        }
    }
}

impl ExportSession {
    /// Rolls back, which waits until the server has finished the running statement.
    async fn end(self) {
        _ = timeout(PATIENCE, self.client.batch_execute("ROLLBACK")).await;
    }
}
