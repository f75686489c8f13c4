//! What follows the mix: reads, and what one write and one read cost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::client::{DocumentsClient, RequestSchedule};
use super::loads::gets;
use super::workload::LiveDocuments;
use super::{Documents, DocumentsLoadResult, schema};
use crate::record::scalar;
use crate::result::{Better, Metric};
use crate::stage::Stage;

/// How long reads last that follow the mix.
const READS: Duration = Duration::from_secs(5);

/// A session of PostgreSQL that has become idle tells what it has counted after ten seconds, if not
/// before.
const ALL_TOLD_AFTER: Duration = Duration::from_secs(11);

/// Documents by which is measured what one costs. Pages of an index that are filled alike split at
/// about the same time: with so many each has.
const COSTS: u32 = 20_000;

/// Documents that are made before these.
const BEFORE_COSTS: u32 = 10_000;

impl Documents {
    /// Reads of all kinds, for a moment each.
    ///
    /// # Errors
    /// When a connection is lost.
    pub(super) async fn reads(
        &self,
        stage: &Stage,
        origin: Instant,
        ran: &mut DocumentsLoadResult,
    ) -> Result<f64> {
        let ids = self.ids.clone().context("the scenario is not prepared")?;
        let moment = || Arc::new(RequestSchedule::new(READS, None, stage.seed));
        let got = self
            .load(stage, moment(), origin, &["get"], gets(ids.clone()))
            .await?;
        let rate = got.requests as f64 / got.took.as_secs_f64();
        ran.recorders.extend(got.recorders);
        let found = self.load(stage, moment(), origin, &["query"], |client, number| {
            for round in 0_u64.. {
                let group = (u64::from(number) * 37 + round) % 1_000;
                let path = format!("documents/items?filter=/group%20=%20{group}&limit=20");
                if client.ask("query", "GET", &path, "", &[200])?.is_none() {
                    break;
                }
            }
            Ok(LiveDocuments::default())
        });
        ran.recorders.extend(found.await?.recorders);
        let referring = self.load(
            stage,
            moment(),
            origin,
            &["referrers"],
            move |client, number| {
                for round in 0_usize.. {
                    let place = (number as usize * 7_919 + round) % ids.things.len();
                    let path = format!("documents/things/{}/referrers", ids.things[place]);
                    if client.ask("referrers", "GET", &path, "", &[200])?.is_none() {
                        break;
                    }
                }
                Ok(LiveDocuments::default())
            },
        );
        ran.recorders.extend(referring.await?.recorders);
        Ok(rate)
    }

    /// What one write and one read cost.
    ///
    /// # Errors
    /// When a connection is lost.
    pub(super) async fn costs(
        &self,
        stage: &Stage,
        metrics: &mut BTreeMap<String, Metric>,
    ) -> Result<()> {
        let site = self.site.as_ref().context("the scenario is not prepared")?;
        let session = site.client().await?;
        let (shape, run, count) = (self.shape, self.run, self.args.documents / 2);
        let write = move |client: &mut DocumentsClient, place: u32| {
            let body = shape.item(
                &format!("w{run}-{place}"),
                |at| all_over(place, at, count),
                'a',
            );
            Ok(Some(client.done("POST", "documents/items", &body)?.id))
        };
        // Its work would be counted as that of writes. A server that was there before keeps its
        // own.
        if self.args.run.private {
            let off = "ALTER SYSTEM SET autovacuum = off";
            session.batch_execute(off).await?;
            session.batch_execute("SELECT pg_reload_conf()").await?;
            session.batch_execute("VACUUM (ANALYZE)").await?;
        }
        session.batch_execute("CHECKPOINT").await?;
        // Whole pages are written once after a checkpoint: that is not a write's own. So many
        // documents come to every page.
        let clients = self.args.clients;
        self.all(stage, clients, BEFORE_COSTS, move |client, place| {
            write(client, place + COSTS)
        })
        .await?;
        let mut before = site.counts(&session).await?;
        let mut cost = async |name: &str, field: fn(schema::Counts) -> i64, unit: &str| {
            let now = site.counts(&session).await?;
            let each = field(now.since(before)) as f64 / f64::from(COSTS);
            before = now;
            let metric = scalar(unit, Better::Lower, each.max(0.0), COSTS.into());
            metrics.insert(name.to_owned(), metric);
            anyhow::Ok(now)
        };
        tokio::time::sleep(ALL_TOLD_AFTER).await;
        let first = cost("ignored", |_| 0, "bytes").await?;
        let made = self.all(stage, clients, COSTS, write).await?;
        tokio::time::sleep(ALL_TOLD_AFTER).await;
        let second = cost("wal_bytes_per_insert", |came| came.wal_bytes, "bytes").await?;
        self.all(stage, clients, COSTS, write).await?;
        cost(
            "wal_bytes_per_unchanged_upsert",
            |came| came.wal_bytes,
            "bytes",
        )
        .await?;
        let made = Arc::new(made);
        for _ in 0..2 {
            let made = made.clone();
            self.all(stage, clients, COSTS, move |client, place| {
                let path = format!("documents/items/{}", made[place as usize % made.len()]);
                client.done("GET", &path, "").map(|_| None)
            })
            .await?;
            cost("wal_bytes_per_get", |came| came.wal_bytes, "bytes").await?;
        }
        metrics.remove("ignored");
        let buffers = second.since(first).buffers as f64 / f64::from(COSTS);
        let buffers = scalar("count", Better::Lower, buffers, COSTS.into());
        metrics.insert("buffers_per_insert".to_owned(), buffers);
        Ok(())
    }
}

/// The code of a thing that an item refers to: no two items that follow each other refer to
/// neighbours.
pub(super) fn all_over(item: u32, at: u32, things: u32) -> String {
    let place = (u64::from(item) * 7_919 + u64::from(at) * 1_237) % u64::from(things);
    format!("t{place}")
}
