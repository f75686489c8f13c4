//! All documents of a collection, as they were at one moment.

use std::sync::Arc;
use std::time::Duration;

use egret_postgres::tokio_postgres::{Client, Statement};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::{Caller, Documents, is_seen};
use crate::core::group::Declared;
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::CollectionName;
use crate::store::query::Portions;
use crate::store::read::{Stored, export_sql};
use crate::worker::asker::Permit;
use crate::worker::session::SETTINGS;

/// Documents that are told at a time, at most.
const TOGETHER_MAX: u32 = 128;

/// How long what the server was asked last may take, when nobody waits for it any more.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long whoever exports may read nothing. While he reads, the server keeps what is deleted meanwhile.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// Documents of a collection, in the order in which they were made.
pub struct Export {
    /// None when it is dropped.
    session: Option<Session>,
    caller: Caller,
    declared: Arc<Declared>,
    after: i64,
    portions: Portions,
}

/// A session in a transaction that sees one moment. It counts among the exports until the server has ended what it was asked.
struct Session {
    client: Client,
    statement: Statement,
    _permit: Permit,
}

impl Documents {
    /// Begins to read all documents of a collection as they are now.
    ///
    /// # Errors
    /// [`DocumentsError::Overloaded`], and what the server says.
    pub async fn export(
        &self,
        caller: &Caller,
        collection: &CollectionName,
    ) -> Result<Export, DocumentsError> {
        let kept = self.kept(caller).await?;
        let declared = kept.declared(caller, Action::Read, collection)?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let permit = kept.asker.export(&caller.tenant).await?;
        let client = kept.keeper.client().await?;
        client.batch_execute(SETTINGS).await?;
        let idle_ms = IDLE_MAX.as_millis();
        let begin = format!(
            "SET idle_in_transaction_session_timeout = {idle_ms}; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        );
        client.batch_execute(&begin).await?;
        let sql = export_sql(tenant.0, declared.id.0);
        let statement = match client.prepare(&sql).await {
            Ok(statement) => statement,
            Err(error) => return Err(kept.keeper.check_removal(error.into()).await),
        };
        let session = Session {
            statement,
            client,
            _permit: permit,
        };
        Ok(Export {
            session: Some(session),
            caller: caller.clone(),
            declared,
            after: i64::MIN,
            portions: Portions::new(TOGETHER_MAX),
        })
    }
}

impl Export {
    /// The next documents, no more than fit into memory; none: there are no more.
    ///
    /// # Errors
    /// What the server says.
    pub async fn next(&mut self) -> Result<Vec<Stored>, DocumentsError> {
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

    /// The documents that come next, as many as there is room for.
    async fn portion(&mut self) -> Result<Vec<Stored>, DocumentsError> {
        let session = self.session.as_ref().expect("it is not dropped yet");
        let (client, statement) = (&session.client, &session.statement);
        let rows = self
            .portions
            .next(client, statement, &[&self.after])
            .await?;
        let page: Vec<Stored> = rows.iter().map(Stored::of).collect();
        if let Some(last) = page.last() {
            self.after = last.id.number();
        }
        Ok(page)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Without a runtime the connection is at its end, too.
        if let (Some(session), Ok(runtime)) = (self.session.take(), Handle::try_current()) {
            runtime.spawn(session.end());
        }
    }
}

impl Session {
    /// Waits until the server has ended what it was asked.
    async fn end(self) {
        _ = timeout(PATIENCE, self.client.batch_execute("ROLLBACK")).await;
    }
}
