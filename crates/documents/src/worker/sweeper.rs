//! Retention: deletes expired replies to idempotent requests, changes of the feed, document
//! versions and documents.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use egret_base::{Clock, condition};
use egret_postgres::tokio_postgres::{Client, Row};
use tokio::sync::watch;

use super::commit::queued::WriteOptions;
use super::ownership::{OwnershipManager, OwnershipState};
use super::query_values;
use super::session::SESSION_SETTINGS;
use crate::config::DocumentsConfig;
use crate::core::collection::DeclaredCollection;
use crate::core::decision::Condition;
use crate::core::write::{WriteOp, WriteRequest};
use crate::error::DocumentsError;
use crate::model::{CollectionId, DocumentId, DocumentNumber, TenantId};
use crate::store::{collections, sweep};

/// Documents deleted in one batch, at most.
const BATCH_DOCUMENTS_MAX: i64 = 500;

/// Documents of a collection examined in one sweep, at most: referenced ones are kept and examined
/// again in each round.
const EXAMINED_MAX: usize = 50_000;

/// Last document number examined in the current round, by tenant and collection.
type SweepProgress = HashMap<(TenantId, CollectionId), DocumentNumber>;

/// Author recorded for deletions by retention.
const RETENTION_AUTHOR: &str = "retention";

pub(crate) struct Sweeper {
    pub ownership: Arc<OwnershipManager>,
    pub config: DocumentsConfig,
    pub clock: Arc<dyn Clock>,
}

impl Sweeper {
    /// Sweeps periodically while this Egret is the owner, until shutdown.
    pub(crate) async fn sweep(self, mut stopping: watch::Receiver<bool>) {
        let mut progress = SweepProgress::new();
        let database = self.ownership.database.as_str();
        let fault = condition::Condition::new("documents_retention_failing", database);
        while !*stopping.borrow() {
            tokio::select! {
                _ = stopping.changed() => break,
                () = tokio::time::sleep(self.config.sweep_interval.duration()) => {}
            }
            if self.ownership.state() == OwnershipState::Owner {
                tokio::select! {
                    _ = stopping.changed() => break,
                    () = self.sweep_once(&mut progress, &fault) => {}
                }
            }
        }
    }

    /// Sweeps once, and raises or ends the condition.
    async fn sweep_once(&self, progress: &mut SweepProgress, fault: &condition::Condition) {
        let Err(error) = self.sweep_database(progress).await else {
            return fault.recover("expired documents, versions and changes are deleted again");
        };
        let error = self.ownership.check_removal(error).await;
        if error.is_removed() {
            // Everything was removed with the schema: no fault.
            fault.end();
        } else {
            let message = "cannot delete expired documents, versions and changes; retrying";
            fault.fail(&error, message);
        }
    }

    async fn sweep_database(&self, progress: &mut SweepProgress) -> Result<(), DocumentsError> {
        let client = self.ownership.connect().await?;
        client.batch_execute(SESSION_SETTINGS).await?;
        let config = &self.config;
        let as_of = UNIX_EPOCH + Duration::from_millis(self.clock.now().as_millis_unsigned());
        sweep::delete_requests(&client, as_of, config.requests_kept.duration().as_secs_f64())
            .await?;
        sweep::trim_feed(&client, as_of, config.feed_kept.duration().as_secs_f64()).await?;
        let catalogue = self.ownership.writer.catalogue();
        let mut expiring = Vec::new();
        for declared in catalogue.iter() {
            let definition = declared.collection.definition();
            if let Some(days) = definition.history.days {
                sweep::delete_versions(&client, as_of, declared.id, days.cast_signed()).await?;
            }
            if let Some(days) = definition.retention_days {
                expiring.extend(catalogue.by_id(declared.id).map(|declared| (declared, days)));
            }
        }
        if !expiring.is_empty() {
            let tenants = collections::read_tenants(&client).await?;
            for (declared, days) in expiring {
                for tenant in tenants.values() {
                    let last_number =
                        progress.entry((*tenant, declared.id)).or_insert(DocumentNumber::MIN);
                    self.delete_expired(&client, *tenant, &declared, days, last_number).await?;
                }
            }
        }
        // Last: it may take long.
        query_values::repair(&client).await
    }

    /// Deletes documents older than `days`. Referenced documents stay until their referrers are
    /// gone.
    async fn delete_expired(
        &self,
        client: &Client,
        tenant: TenantId,
        declared: &Arc<DeclaredCollection>,
        days: u32,
        last_number: &mut DocumentNumber,
    ) -> Result<(), DocumentsError> {
        let now = self.clock.now().as_micros() / 1_000;
        let end = DocumentNumber((now - i64::from(days) * 86_400_000) << 16);
        for _ in 0..EXAMINED_MAX / BATCH_DOCUMENTS_MAX as usize {
            let rows = client
                .query(
                    sweep::EXPIRED_DOCUMENTS_SQL,
                    &[&tenant, &declared.id, &*last_number, &end, &BATCH_DOCUMENTS_MAX],
                )
                .await?;
            let id = |row: &Row| DocumentId::from_stored(row.get(0));
            let Some(last) = rows.last() else {
                *last_number = DocumentNumber::MIN;
                return Ok(());
            };
            *last_number = id(last).number();
            let unreferenced = rows.iter().filter(|row| !row.get::<_, bool>(1));
            let ids: Vec<DocumentId> = unreferenced.map(id).collect();
            let requests = ids.into_iter().map(|id| {
                let request = WriteRequest {
                    tenant,
                    declared: declared.clone(),
                    op: WriteOp::Delete(id),
                    condition: Condition::Always,
                    author: Some(RETENTION_AUTHOR.to_owned()),
                    trace: None,
                    rights: Arc::default(),
                };
                (request, WriteOptions::default())
            });
            let results = self.ownership.writer.write_each(requests.collect()).await;
            for error in results.into_iter().filter_map(Result::err) {
                match error {
                    DocumentsError::StillReferenced { .. } | DocumentsError::NotFound { .. } => {}
                    error => return Err(error),
                }
            }
        }
        Ok(())
    }
}
