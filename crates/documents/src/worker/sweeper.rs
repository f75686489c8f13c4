//! What is kept for a time only goes: answers of requests, the feed, what documents were, and documents themselves.

use std::sync::Arc;

use egret_base::Clock;
use egret_postgres::tokio_postgres::Client;
use tokio::sync::watch;
use uuid::Uuid;

use super::keeper::{Keeper, Standing};
use super::step::Manner;
use crate::config::DocumentsConfig;
use crate::core::decide::Condition;
use crate::core::group::{Asked, Declared, What};
use crate::error::DocumentsError;
use crate::model::{DocumentId, TenantId};
use crate::store::{collections, sweep};

/// Documents that go at a time.
const DOCUMENTS: i64 = 500;

/// Who deletes documents that have been there for long enough, as it is told.
const AUTHOR: &str = "retention";

/// See the module.
pub struct Sweeper {
    /// The database.
    pub keeper: Arc<Keeper>,
    /// The settings.
    pub config: DocumentsConfig,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
}

impl Sweeper {
    /// Looks again and again, until everything stops.
    pub async fn sweep(self, mut stopping: watch::Receiver<bool>) {
        while !*stopping.borrow() {
            tokio::select! {
                _ = stopping.changed() => break,
                () = tokio::time::sleep(self.config.sweep_interval.duration()) => {}
            }
            if self.keeper.standing() == Standing::Owner {
                let database = &self.keeper.database;
                tokio::select! {
                    _ = stopping.changed() => break,
                    swept = self.once() => if let Err(error) = swept {
                        tracing::warn!(%error, database, "what is too old could not be removed");
                    }
                }
            }
        }
    }

    async fn once(&self) -> Result<(), DocumentsError> {
        let client = self.keeper.client().await?;
        let config = &self.config;
        sweep::requests(&client, config.requests_kept.duration().as_secs_f64()).await?;
        sweep::feed(&client, config.feed_kept.duration().as_secs_f64()).await?;
        let catalogue = self.keeper.writer.catalogue();
        let mut old = Vec::new();
        for declared in catalogue.iter() {
            let definition = declared.collection.definition();
            if let Some(days) = definition.history.days {
                sweep::versions(&client, declared.id.0, days.cast_signed()).await?;
            }
            if let Some(days) = definition.retention_days {
                old.extend(
                    catalogue
                        .by_id(declared.id)
                        .map(|declared| (declared, days)),
                );
            }
        }
        if old.is_empty() {
            return Ok(());
        }
        let tenants = collections::tenants(&client).await?;
        for (declared, days) in old {
            for tenant in tenants.values() {
                self.documents(&client, *tenant, &declared, days).await?;
            }
        }
        Ok(())
    }

    /// Deletes documents that were made more than so many days ago; those to which others refer stay until those go.
    async fn documents(
        &self,
        client: &Client,
        tenant: TenantId,
        declared: &Arc<Declared>,
        days: u32,
    ) -> Result<(), DocumentsError> {
        let now = self.clock.now().as_micros() / 1_000;
        let end = (now - i64::from(days) * 86_400_000) << 16;
        let mut after = i64::MIN;
        loop {
            let rows = client
                .query(
                    sweep::OLD,
                    &[&tenant.0, &declared.id.0, &after, &end, &DOCUMENTS],
                )
                .await?;
            let ids = rows
                .iter()
                .map(|row| DocumentId::stored(row.get::<_, Uuid>(0)));
            let ids: Vec<DocumentId> = ids.collect();
            let Some(last) = ids.last() else {
                return Ok(());
            };
            after = last.number();
            let asked = ids.into_iter().map(|id| {
                let asked = Asked {
                    tenant,
                    declared: declared.clone(),
                    what: What::Remove(id),
                    condition: Condition::Always,
                    author: Some(AUTHOR.to_owned()),
                    trace: None,
                    rights: Arc::default(),
                };
                (asked, Manner::default())
            });
            let told = self.keeper.writer.write_each(asked.collect()).await;
            for refused in told.into_iter().filter_map(Result::err) {
                match refused {
                    DocumentsError::StillReferenced { .. } | DocumentsError::NotFound { .. } => {}
                    error => return Err(error),
                }
            }
        }
    }
}
