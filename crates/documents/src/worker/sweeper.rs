//! Retention: deletes expired replies to idempotent requests, changes of the feed, document
//! versions and documents.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use egret_base::{Clock, condition};
use egret_postgres::tokio_postgres::{Client, Row};
use tokio::sync::watch;

use super::commit::queued::WriteOptions;
use super::indexes;
use super::ownership::{OwnershipManager, OwnershipState};
use super::session::SETTINGS;
use crate::config::DocumentsConfig;
use crate::core::collection::DeclaredCollection;
use crate::core::decision::Condition;
use crate::core::write::{WriteOp, WriteRequest};
use crate::error::DocumentsError;
use crate::model::{CollectionId, DocumentId, DocumentNumber, TenantId};
use crate::store::{collections, sweep};

/// Documents deleted in one batch, at most.
const DOCUMENTS: i64 = 500;

/// Documents of a collection examined in one sweep, at most: referenced ones are kept and examined
/// again in each round.
const LOOKED_AT_MAX: usize = 50_000;

/// Last document number examined in the current round, by tenant and collection.
type SweepProgress = HashMap<(TenantId, CollectionId), DocumentNumber>;

/// Author recorded for deletions by retention.
const AUTHOR: &str = "retention";

pub(crate) struct Sweeper {
    pub keeper: Arc<OwnershipManager>,
    pub config: DocumentsConfig,
    pub clock: Arc<dyn Clock>,
}

impl Sweeper {
    /// Sweeps periodically while this Egret is the owner, until shutdown.
    pub(crate) async fn sweep(self, mut stopping: watch::Receiver<bool>) {
        let mut rounds = SweepProgress::new();
        let database = self.keeper.database.as_str();
        let failing = condition::Condition::new("documents_retention_failing", database);
        while !*stopping.borrow() {
            tokio::select! {
                _ = stopping.changed() => break,
                () = tokio::time::sleep(self.config.sweep_interval.duration()) => {}
            }
            if self.keeper.standing() == OwnershipState::Owner {
                tokio::select! {
                    _ = stopping.changed() => break,
                    () = self.sweep_once(&mut rounds, &failing) => {}
                }
            }
        }
    }

    /// Sweeps once, and raises or ends the condition.
    async fn sweep_once(&self, rounds: &mut SweepProgress, failing: &condition::Condition) {
        let Err(error) = self.once(rounds).await else {
            return failing.recover("expired documents, versions and changes are deleted again");
        };
        let error = self.keeper.check_removal(error).await;
        if error.is_removed() {
            // Everything was removed with the schema: no fault.
            failing.end();
        } else {
            let message = "cannot delete expired documents, versions and changes; retrying";
            failing.fail(&error, message);
        }
    }

    async fn once(&self, rounds: &mut SweepProgress) -> Result<(), DocumentsError> {
        let client = self.keeper.client().await?;
        client.batch_execute(SETTINGS).await?;
        let config = &self.config;
        let as_of = UNIX_EPOCH + Duration::from_millis(self.clock.now().as_millis_unsigned());
        sweep::requests(
            &client,
            as_of,
            config.requests_kept.duration().as_secs_f64(),
        )
        .await?;
        sweep::feed(&client, as_of, config.feed_kept.duration().as_secs_f64()).await?;
        let catalogue = self.keeper.writer.catalogue();
        let mut old = Vec::new();
        for declared in catalogue.iter() {
            let definition = declared.collection.definition();
            if let Some(days) = definition.history.days {
                sweep::versions(&client, as_of, declared.id, days.cast_signed()).await?;
            }
            if let Some(days) = definition.retention_days {
                old.extend(
                    catalogue
                        .by_id(declared.id)
                        .map(|declared| (declared, days)),
                );
            }
        }
        if !old.is_empty() {
            let tenants = collections::tenants(&client).await?;
            for (declared, days) in old {
                for tenant in tenants.values() {
                    let round = rounds
                        .entry((*tenant, declared.id))
                        .or_insert(DocumentNumber::MIN);
                    self.documents(&client, *tenant, &declared, days, round)
                        .await?;
                }
            }
        }
        // Last: building an index concurrently waits for all older snapshots.
        indexes::repair(&client, &catalogue).await
    }

    /// Deletes documents older than `days`. Referenced documents stay until their referrers are
    /// gone.
    async fn documents(
        &self,
        client: &Client,
        tenant: TenantId,
        declared: &Arc<DeclaredCollection>,
        days: u32,
        round: &mut DocumentNumber,
    ) -> Result<(), DocumentsError> {
        let now = self.clock.now().as_micros() / 1_000;
        let end = DocumentNumber((now - i64::from(days) * 86_400_000) << 16);
        for _ in 0..LOOKED_AT_MAX / DOCUMENTS as usize {
            let rows = client
                .query(
                    sweep::OLD,
                    &[&tenant, &declared.id, &*round, &end, &DOCUMENTS],
                )
                .await?;
            let id = |row: &Row| DocumentId::stored(row.get(0));
            let Some(last) = rows.last() else {
                *round = DocumentNumber::MIN;
                return Ok(());
            };
            *round = id(last).number();
            let free = rows.iter().filter(|row| !row.get::<_, bool>(1));
            let ids: Vec<DocumentId> = free.map(id).collect();
            let requests = ids.into_iter().map(|id| {
                let request = WriteRequest {
                    tenant,
                    declared: declared.clone(),
                    op: WriteOp::Delete(id),
                    condition: Condition::Always,
                    author: Some(AUTHOR.to_owned()),
                    trace: None,
                    rights: Arc::default(),
                };
                (request, WriteOptions::default())
            });
            let results = self.keeper.writer.write_each(requests.collect()).await;
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
