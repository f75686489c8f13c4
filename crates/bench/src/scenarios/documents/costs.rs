//! What follows the mix: reads, and what one write and one read cost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::client::{DocumentsClient, RequestSchedule};
use super::loads::get_by_id;
use super::workload::LiveDocuments;
use super::{Documents, DocumentsLoadResult, fixture};
use crate::record::scalar;
use crate::result::{Better, Metric};
use crate::stage::Stage;

/// How long reads last that follow the mix.
const READ_DURATION: Duration = Duration::from_secs(5);

/// A session of PostgreSQL that has become idle tells what it has counted after ten seconds, if not
/// before.
const STATISTICS_FLUSH_DELAY: Duration = Duration::from_secs(11);

/// Documents by which is measured what one costs. Pages of an index that are filled alike split at
/// about the same time: with so many each has.
const COST_SAMPLES: u32 = 20_000;

/// Documents that are made before these.
const COST_WARMUP_DOCUMENTS: u32 = 10_000;

impl Documents {
    /// Reads of all kinds, for a moment each.
    ///
    /// # Errors
    /// When a connection is lost.
    pub(super) async fn measure_reads(
        &self,
        stage: &Stage,
        origin: Instant,
        result: &mut DocumentsLoadResult,
    ) -> Result<f64> {
        let ids = self.ids.clone().context("the scenario is not prepared")?;
        let new_schedule = || Arc::new(RequestSchedule::new(READ_DURATION, None, stage.seed));
        let get_result = self
            .run_clients(stage, new_schedule(), origin, &["get"], get_by_id(ids.clone()))
            .await?;
        let rate = get_result.requests as f64 / get_result.duration.as_secs_f64();
        result.recorders.extend(get_result.recorders);
        let queries =
            self.run_clients(stage, new_schedule(), origin, &["query"], |client, number| {
                for round in 0_u64.. {
                    let group = (u64::from(number) * 37 + round) % 1_000;
                    let path = format!("documents/items?filter=/group%20=%20{group}&limit=20");
                    if client.send_when_due("query", "GET", &path, "", &[200])?.is_none() {
                        break;
                    }
                }
                Ok(LiveDocuments::default())
            });
        result.recorders.extend(queries.await?.recorders);
        let referrer_queries = self.run_clients(
            stage,
            new_schedule(),
            origin,
            &["referrers"],
            move |client, number| {
                for round in 0_usize.. {
                    let index = (number as usize * 7_919 + round) % ids.things.len();
                    let path = format!("documents/things/{}/referrers", ids.things[index]);
                    if client.send_when_due("referrers", "GET", &path, "", &[200])?.is_none() {
                        break;
                    }
                }
                Ok(LiveDocuments::default())
            },
        );
        result.recorders.extend(referrer_queries.await?.recorders);
        Ok(rate)
    }

    /// What one write and one read cost.
    ///
    /// # Errors
    /// When a connection is lost.
    pub(super) async fn measure_costs(
        &self,
        stage: &Stage,
        metrics: &mut BTreeMap<String, Metric>,
    ) -> Result<()> {
        let fixture = self.fixture.as_ref().context("the scenario is not prepared")?;
        let session = fixture.connect().await?;
        let (shape, run, count) = (self.shape, self.run_number, self.args.documents / 2);
        let write = move |client: &mut DocumentsClient, index: u32| {
            let body = shape.item(
                &format!("w{run}-{index}"),
                |reference| spread_target(index, reference, count),
                'a',
            );
            Ok(Some(client.send_checked("POST", "documents/items", &body)?.id))
        };
        // Its work would be counted as that of writes. A server that was there before keeps its
        // own.
        if self.args.run.private {
            let disable_autovacuum = "ALTER SYSTEM SET autovacuum = off";
            session.batch_execute(disable_autovacuum).await?;
            session.batch_execute("SELECT pg_reload_conf()").await?;
            session.batch_execute("VACUUM (ANALYZE)").await?;
        }
        session.batch_execute("CHECKPOINT").await?;
        // Whole pages are written once after a checkpoint: that is not a write's own. So many
        // documents come to every page.
        let clients = self.args.clients;
        self.run_untimed(stage, clients, COST_WARMUP_DOCUMENTS, move |client, place| {
            write(client, place + COST_SAMPLES)
        })
        .await?;
        let mut before = fixture.read_counts(&session).await?;
        let mut record_cost = async |name: &str, field: fn(fixture::Counts) -> i64, unit: &str| {
            let counts = fixture.read_counts(&session).await?;
            let per_document = field(counts.since(before)) as f64 / f64::from(COST_SAMPLES);
            before = counts;
            let metric = scalar(unit, Better::Lower, per_document.max(0.0), COST_SAMPLES.into());
            metrics.insert(name.to_owned(), metric);
            anyhow::Ok(counts)
        };
        tokio::time::sleep(STATISTICS_FLUSH_DELAY).await;
        let counts_before_inserts = record_cost("ignored", |_| 0, "bytes").await?;
        let ids = self.run_untimed(stage, clients, COST_SAMPLES, write).await?;
        tokio::time::sleep(STATISTICS_FLUSH_DELAY).await;
        let counts_after_inserts =
            record_cost("wal_bytes_per_insert", |came| came.wal_bytes, "bytes").await?;
        self.run_untimed(stage, clients, COST_SAMPLES, write).await?;
        record_cost("wal_bytes_per_unchanged_upsert", |came| came.wal_bytes, "bytes").await?;
        let made = Arc::new(ids);
        for _ in 0..2 {
            let made = made.clone();
            self.run_untimed(stage, clients, COST_SAMPLES, move |client, place| {
                let path = format!("documents/items/{}", made[place as usize % made.len()]);
                client.send_checked("GET", &path, "").map(|_| None)
            })
            .await?;
            record_cost("wal_bytes_per_get", |came| came.wal_bytes, "bytes").await?;
        }
        metrics.remove("ignored");
        let buffers = counts_after_inserts.since(counts_before_inserts).buffers as f64
            / f64::from(COST_SAMPLES);
        let buffers = scalar("count", Better::Lower, buffers, COST_SAMPLES.into());
        metrics.insert("buffers_per_insert".to_owned(), buffers);
        Ok(())
    }
}

/// The code of a thing that an item refers to: no two items that follow each other refer to
/// neighbours.
pub(super) fn spread_target(item: u32, reference: u32, things: u32) -> String {
    let index = (u64::from(item) * 7_919 + u64::from(reference) * 1_237) % u64::from(things);
    format!("t{index}")
}
