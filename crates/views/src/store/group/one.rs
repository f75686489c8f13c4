//! One view of those that are refreshed together.

use std::time::Instant;

use egret_postgres::tokio_postgres::Client;

use crate::core::choose::Costs;
use crate::error::ViewsError;
use crate::store::apply::{Told, bring};
use crate::store::refresh::{Compares, Counts, Limits, Refreshable, Refreshed};
use crate::store::standing::Standing;
use crate::store::statements::Statements;

/// One view of those that are refreshed.
pub struct One<'a> {
    /// It.
    pub view: &'a Refreshable,
    /// How it stands.
    pub standing: &'a Standing,
    /// How much has changed.
    pub counts: &'a Counts,
    /// What earlier refreshes of it took.
    pub costs: Option<&'a Costs>,
    /// Whether others of them read it.
    pub is_told: bool,
    /// Whether it is compared with its query, and why.
    pub compares: Option<Compares>,
    /// Whether the plans of its statements are kept.
    pub is_explained: bool,
    /// How much it may be.
    pub limits: Limits,
}

impl One<'_> {
    /// Brings it up to date.
    ///
    /// # Errors
    /// [`ViewsError`]: the transaction is to be rolled back.
    pub async fn refresh(
        &self,
        client: &Client,
        statements: &mut Statements,
        told: &mut Told,
    ) -> Result<Refreshed, ViewsError> {
        let begun = Instant::now();
        let reached = self.standing.frontier();
        let done = bring(
            client,
            statements,
            self.view,
            (reached, self.counts, self.costs),
            (told, self.is_told),
            (self.limits, self.compares, self.is_explained),
        );
        let mut refreshed = done.await?;
        refreshed.applied_ms = begun.elapsed().as_secs_f64() * 1e3;
        Ok(refreshed)
    }

    /// The same, so that others go on when it fails.
    ///
    /// # Errors
    /// [`ViewsError`]: nothing has changed in it.
    pub async fn apart(
        &self,
        client: &Client,
        statements: &mut Statements,
        told: &mut Told,
    ) -> Result<Refreshed, ViewsError> {
        let failed = self
            .view
            .views()
            .find(|view| !told.views.contains_key(view));
        if let Some(view) = failed {
            return Err(ViewsError::SourceFailed { view });
        }
        client.batch_execute("SAVEPOINT egret_view").await?;
        let refreshed = self.refresh(client, statements, told).await;
        match refreshed {
            Ok(refreshed) => {
                client.batch_execute("RELEASE SAVEPOINT egret_view").await?;
                Ok(refreshed)
            }
            Err(error) => {
                let undo = "ROLLBACK TO SAVEPOINT egret_view; RELEASE SAVEPOINT egret_view";
                client.batch_execute(undo).await?;
                told.views.remove(&self.view.record.id);
                Err(error)
            }
        }
    }
}
