//! The loads of the clients, one for each scenario.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use egret_bench_cli::DocumentsScenario;

use super::client::{DocumentsClient, RequestSchedule};
use super::workload::{self, LiveDocuments};
use super::{Documents, DocumentsLoadResult, IMPORT_LINES, Ids};
use crate::stage::Stage;

impl Documents {
    /// The load of the scenario.
    ///
    /// # Errors
    /// When a connection is lost.
    pub(super) async fn run_scenario(
        &self,
        stage: &Stage,
        schedule: &Arc<RequestSchedule>,
        origin: Instant,
    ) -> Result<DocumentsLoadResult> {
        use DocumentsScenario as Which;
        let (shape, run) = (self.shape, self.run_number);
        let ids = self.ids.clone().context("the scenario is not prepared")?;
        match self.args.scenario {
            Which::Volume | Which::Soak => {
                self.run_clients(
                    stage,
                    schedule.clone(),
                    origin,
                    workload::OPERATIONS,
                    move |client, number| workload::run(client, shape, number + run * 10_000),
                )
                .await
            }
            Which::Get => {
                self.run_clients(stage, schedule.clone(), origin, &["get"], get_by_id(ids)).await
            }
            Which::Referrers => {
                let popular = ids.popular.as_ref().context("no document is referenced by many")?;
                let path = format!("documents/things/{popular}/referrers");
                self.run_clients(
                    stage,
                    schedule.clone(),
                    origin,
                    &["referrers"],
                    move |client, _| {
                        while client.send_when_due("referrers", "GET", &path, "", &[200])?.is_some()
                        {
                        }
                        Ok(LiveDocuments::default())
                    },
                )
                .await
            }
            Which::Import => self.run_import(stage, schedule, origin).await,
            _ => self.run_repeated_write(stage, schedule, origin).await,
        }
    }

    /// Items written by every client one after the other, as the scenario has them.
    async fn run_repeated_write(
        &self,
        stage: &Stage,
        schedule: &Arc<RequestSchedule>,
        origin: Instant,
    ) -> Result<DocumentsLoadResult> {
        use DocumentsScenario as Which;
        let (shape, run, count) = (self.shape, self.run_number, self.args.documents / 2);
        match self.args.scenario {
            Which::Unchanged => {
                self.repeat_write(
                    stage,
                    schedule,
                    origin,
                    "unchanged",
                    200,
                    move |number, round| {
                        let index = (number as u64 * 7_919 + round) as u32 % count;
                        let target = |reference| format!("t{}", (index + reference * 7) % count);
                        shape.item(&format!("i{index}"), target, 'a')
                    },
                )
                .await
            }
            Which::HotKey => {
                self.repeat_write(stage, schedule, origin, "update", 200, move |number, round| {
                    let text = char::from(b'a' + ((u64::from(number) + round) % 26) as u8);
                    let to = |at| format!("t{at}");
                    shape.item("i0", to, text)
                })
                .await
            }
            Which::DuplicateReferences => {
                self.repeat_write(stage, schedule, origin, "insert", 201, move |number, round| {
                    let to = |_| format!("t{}", number % count);
                    shape.item(&format!("d{run}-{number}-{round}"), to, 'a')
                })
                .await
            }
            _ => {
                self.repeat_write(
                    stage,
                    schedule,
                    origin,
                    "unresolved",
                    409,
                    move |number, round| {
                        let to = |at| match at {
                            0 => format!("none{round}"),
                            at => format!("t{at}"),
                        };
                        shape.item(&format!("u{run}-{number}-{round}"), to, 'a')
                    },
                )
                .await
            }
        }
    }

    async fn run_import(
        &self,
        stage: &Stage,
        schedule: &Arc<RequestSchedule>,
        origin: Instant,
    ) -> Result<DocumentsLoadResult> {
        let (shape, run, count) = (self.shape, self.run_number, self.args.documents / 2);
        self.run_clients(stage, schedule.clone(), origin, &["import"], move |client, number| {
            for part in 0_u32.. {
                let lines = (0..IMPORT_LINES).map(|line| {
                    let target = |reference| format!("t{}", (line + reference * 7) % count);
                    let code = format!("n{run}-{number}-{part}-{line}");
                    shape.item(&code, target, 'a') + "\n"
                });
                let text: String = lines.collect();
                let path = "collections/items/import";
                if client.send_when_due("import", "POST", path, &text, &[200])?.is_none() {
                    break;
                }
            }
            Ok(LiveDocuments::default())
        })
        .await
    }

    /// Items written one after the other by every client.
    async fn repeat_write(
        &self,
        stage: &Stage,
        schedule: &Arc<RequestSchedule>,
        origin: Instant,
        name: &'static str,
        expected: u64,
        body: impl Fn(u32, u64) -> String + Send + Sync + 'static,
    ) -> Result<DocumentsLoadResult> {
        self.run_clients(stage, schedule.clone(), origin, &[], move |client, number| {
            for round in 0.. {
                let text = body(number, round);
                let reply =
                    client.send_when_due(name, "POST", "documents/items", &text, &[expected])?;
                if reply.is_none() {
                    break;
                }
            }
            Ok(LiveDocuments::default())
        })
        .await
    }
}

/// Documents read by id, items and things in turn.
pub(super) fn get_by_id(
    ids: Arc<Ids>,
) -> impl Fn(&mut DocumentsClient, u32) -> Result<LiveDocuments> + Send + Sync + 'static {
    move |client, number| {
        for round in 0_usize.. {
            let index = number as usize * 7_919 + round * 31;
            let (collection, collection_ids) = match round % 2 {
                0 => ("items", &ids.items),
                _ => ("things", &ids.things),
            };
            let path =
                format!("documents/{collection}/{}", collection_ids[index % collection_ids.len()]);
            if client.send_when_due("get", "GET", &path, "", &[200])?.is_none() {
                break;
            }
        }
        Ok(LiveDocuments::default())
    }
}
