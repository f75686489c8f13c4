//! What is kept for a time only goes: answers of requests, the feed, what documents were, and documents themselves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use egret_base::{Clock, condition};
use egret_postgres::tokio_postgres::{Client, Row};
use tokio::sync::watch;

use super::indexes;
use super::keeper::{Keeper, Standing};
use super::session::SETTINGS;
use super::step::Manner;
use crate::config::DocumentsConfig;
use crate::core::decide::Condition;
use crate::core::group::{Asked, Declared, What};
use crate::error::DocumentsError;
use crate::model::{CollectionId, DocumentId, TenantId};
use crate::store::{collections, sweep};

/// Documents that go at a time.
const DOCUMENTS: i64 = 500;

/// Documents of a collection that are looked at in one go: those to which others refer stay, and are met again in each round.
const LOOKED_AT_MAX: usize = 50_000;

/// How far a round has come, by tenants and collections: up to which number.
type Rounds = HashMap<(TenantId, CollectionId), i64>;

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
        let mut rounds = Rounds::new();
        let database = self.keeper.database.as_str();
        let failing = condition::Condition::new("documents_retention_failing", database);
        while !*stopping.borrow() {
            tokio::select! {
                _ = stopping.changed() => break,
                () = tokio::time::sleep(self.config.sweep_interval.duration()) => {}
            }
            if self.keeper.standing() == Standing::Owner {
                tokio::select! {
                    _ = stopping.changed() => break,
                    () = self.sweep_once(&mut rounds, &failing) => {}
                }
            }
        }
    }

    /// Sweeps, and notes whether that failed.
    async fn sweep_once(&self, rounds: &mut Rounds, failing: &condition::Condition) {
        let Err(error) = self.once(rounds).await else {
            return failing.recover("documents that are too old are removed again");
        };
        let error = self.keeper.check_removal(error).await;
        if error.is_removed() {
            // Nothing is left to be removed.
            failing.end();
        } else {
            let message = "cannot remove documents that are too old; retrying";
            failing.fail(&error, message);
        }
    }

    async fn once(&self, rounds: &mut Rounds) -> Result<(), DocumentsError> {
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
                sweep::versions(&client, as_of, declared.id.0, days.cast_signed()).await?;
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
                    let round = rounds.entry((*tenant, declared.id)).or_insert(i64::MIN);
                    self.documents(&client, (*tenant, &declared), days, round)
                        .await?;
                }
            }
        }
        // Last: an index that is built beside writers waits for all that look at an older state.
        indexes::repair(&client, &catalogue).await
    }

    /// Deletes documents that were made more than so many days ago; those to which others refer stay until those go.
    async fn documents(
        &self,
        client: &Client,
        (tenant, declared): (TenantId, &Arc<Declared>),
        days: u32,
        round: &mut i64,
    ) -> Result<(), DocumentsError> {
        let now = self.clock.now().as_micros() / 1_000;
        let end = (now - i64::from(days) * 86_400_000) << 16;
        for _ in 0..LOOKED_AT_MAX / DOCUMENTS as usize {
            let rows = client
                .query(
                    sweep::OLD,
                    &[&tenant.0, &declared.id.0, &*round, &end, &DOCUMENTS],
                )
                .await?;
            let id = |row: &Row| DocumentId::stored(row.get(0));
            let Some(last) = rows.last() else {
                *round = i64::MIN;
                return Ok(());
            };
            *round = id(last).number();
            let free = rows.iter().filter(|row| !row.get::<_, bool>(1));
            let ids: Vec<DocumentId> = free.map(id).collect();
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
        Ok(())
    }
}
