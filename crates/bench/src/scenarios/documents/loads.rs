//! The loads of the clients, one for each scenario.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use egret_bench_cli::DocumentsScenario;

use super::client::{DocumentsClient, RequestSchedule};
use super::workload::{self, LiveDocuments};
use super::{Documents, DocumentsLoadResult, Ids, LINES};
use crate::stage::Stage;

impl Documents {
    /// The load of the scenario.
    ///
    /// # Errors
    /// When a connection is lost.
    pub(super) async fn main(
        &self,
        stage: &Stage,
        pace: &Arc<RequestSchedule>,
        origin: Instant,
    ) -> Result<DocumentsLoadResult> {
        use DocumentsScenario as Which;
        let (shape, run) = (self.shape, self.run);
        let ids = self.ids.clone().context("the scenario is not prepared")?;
        match self.args.scenario {
            Which::Volume | Which::Soak => {
                self.load(
                    stage,
                    pace.clone(),
                    origin,
                    workload::OPERATIONS,
                    move |client, number| workload::run(client, shape, number + run * 10_000),
                )
                .await
            }
            Which::Get => {
                self.load(stage, pace.clone(), origin, &["get"], gets(ids))
                    .await
            }
            Which::Referrers => {
                let popular = ids
                    .popular
                    .as_ref()
                    .context("no document is referenced by many")?;
                let path = format!("documents/things/{popular}/referrers");
                self.load(
                    stage,
                    pace.clone(),
                    origin,
                    &["referrers"],
                    move |client, _| {
                        while client.ask("referrers", "GET", &path, "", &[200])?.is_some() {}
                        Ok(LiveDocuments::default())
                    },
                )
                .await
            }
            Which::Import => self.import(stage, pace, origin).await,
            _ => self.again_and_again(stage, pace, origin).await,
        }
    }

    /// Items written by every client one after the other, as the scenario has them.
    async fn again_and_again(
        &self,
        stage: &Stage,
        pace: &Arc<RequestSchedule>,
        origin: Instant,
    ) -> Result<DocumentsLoadResult> {
        use DocumentsScenario as Which;
        let (shape, run, count) = (self.shape, self.run, self.args.documents / 2);
        match self.args.scenario {
            Which::Unchanged => {
                self.repeat(
                    stage,
                    pace,
                    origin,
                    "unchanged",
                    200,
                    move |number, round| {
                        let place = (number as u64 * 7_919 + round) as u32 % count;
                        let to = |at| format!("t{}", (place + at * 7) % count);
                        shape.item(&format!("i{place}"), to, 'a')
                    },
                )
                .await
            }
            Which::HotKey => {
                self.repeat(stage, pace, origin, "update", 200, move |number, round| {
                    let text = char::from(b'a' + ((u64::from(number) + round) % 26) as u8);
                    let to = |at| format!("t{at}");
                    shape.item("i0", to, text)
                })
                .await
            }
            Which::DuplicateReferences => {
                self.repeat(stage, pace, origin, "insert", 201, move |number, round| {
                    let to = |_| format!("t{}", number % count);
                    shape.item(&format!("d{run}-{number}-{round}"), to, 'a')
                })
                .await
            }
            _ => {
                self.repeat(
                    stage,
                    pace,
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

    async fn import(
        &self,
        stage: &Stage,
        pace: &Arc<RequestSchedule>,
        origin: Instant,
    ) -> Result<DocumentsLoadResult> {
        let (shape, run, count) = (self.shape, self.run, self.args.documents / 2);
        self.load(
            stage,
            pace.clone(),
            origin,
            &["import"],
            move |client, number| {
                for part in 0_u32.. {
                    let lines = (0..LINES).map(|line| {
                        let to = |at| format!("t{}", (line + at * 7) % count);
                        let code = format!("n{run}-{number}-{part}-{line}");
                        shape.item(&code, to, 'a') + "\n"
                    });
                    let text: String = lines.collect();
                    let path = "collections/items/import";
                    if client.ask("import", "POST", path, &text, &[200])?.is_none() {
                        break;
                    }
                }
                Ok(LiveDocuments::default())
            },
        )
        .await
    }

    /// Items written one after the other by every client.
    async fn repeat(
        &self,
        stage: &Stage,
        pace: &Arc<RequestSchedule>,
        origin: Instant,
        name: &'static str,
        expected: u64,
        body: impl Fn(u32, u64) -> String + Send + Sync + 'static,
    ) -> Result<DocumentsLoadResult> {
        self.load(stage, pace.clone(), origin, &[], move |client, number| {
            for round in 0.. {
                let text = body(number, round);
                let reply = client.ask(name, "POST", "documents/items", &text, &[expected])?;
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
pub(super) fn gets(
    ids: Arc<Ids>,
) -> impl Fn(&mut DocumentsClient, u32) -> Result<LiveDocuments> + Send + Sync + 'static {
    move |client, number| {
        for round in 0_usize.. {
            let place = number as usize * 7_919 + round * 31;
            let (collection, all) = match round % 2 {
                0 => ("items", &ids.items),
                _ => ("things", &ids.things),
            };
            let path = format!("documents/{collection}/{}", all[place % all.len()]);
            if client.ask("get", "GET", &path, "", &[200])?.is_none() {
                break;
            }
        }
        Ok(LiveDocuments::default())
    }
}
