//! All documents of a collection, as they were at one moment.

use std::sync::Arc;

use egret_postgres::tokio_postgres::Client;

use super::{Caller, Documents, is_seen};
use crate::core::group::Declared;
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{CollectionName, TenantId};
use crate::store::read::{Stored, export_sql};

/// Documents that are read at a time.
const PAGE: i64 = 1_000;

/// Documents of a collection, in the order in which they were made.
pub struct Export {
    client: Client,
    caller: Caller,
    tenant: TenantId,
    declared: Arc<Declared>,
    after: i64,
}

impl Documents {
    /// Begins to read all documents of a collection as they are now.
    ///
    /// # Errors
    /// [`DocumentsError`].
    pub async fn export(
        &self,
        caller: &Caller,
        collection: &CollectionName,
    ) -> Result<Export, DocumentsError> {
        let kept = self.kept(caller).await?;
        let declared = kept.declared(caller, Action::Read, collection)?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let client = kept.keeper.client().await?;
        client
            .batch_execute("SET jit = off; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .await?;
        Ok(Export {
            client,
            caller: caller.clone(),
            tenant,
            declared,
            after: i64::MIN,
        })
    }
}

impl Export {
    /// The next documents; none: there are no more.
    ///
    /// # Errors
    /// What the server says.
    pub async fn next(&mut self) -> Result<Vec<Stored>, DocumentsError> {
        loop {
            let sql = export_sql(self.tenant.0, self.declared.id.0);
            let rows = self.client.query(&sql, &[&self.after, &PAGE]).await?;
            let mut page: Vec<Stored> = rows.iter().map(Stored::of).collect();
            let Some(last) = page.last() else {
                return Ok(page);
            };
            self.after = last.id.number();
            page.retain(|stored| is_seen(&self.caller, &self.declared, stored));
            if !page.is_empty() {
                return Ok(page);
            }
        }
    }
}
