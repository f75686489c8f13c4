//! `egret bench queue`: full cycles of a task queue: make a task, hand it out, complete it with a
//! result.
//!
//! ```text
//! callers ── one producer connection ──▶ queue ──▶ one worker connection ── slots
//!    ▲ acknowledged: next call              acknowledged: a cycle ▲
//! ```
//!
//! Only what the server has acknowledged counts, and in the end every task is accounted for.

mod broker;
mod cycle;
mod drive;
mod egret;
mod figures;
mod flight;
mod ledger;
mod link;
mod signals;
mod wire;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use egret_proto::queue::v1;
use egret_proto::queue::v1::queue_client::QueueClient;
use serde_json::Value;
use tonic::transport::Endpoint;

use crate::cli::QueueArgs;
use crate::refusal;
use crate::scenario::{Measurement, Scenario};
use crate::schedule::Spacing;
use crate::server::Server;
use crate::stage::Stage;
use cycle::Plan;
use drive::Lengths;
use figures::Watch;

/// The scenario.
pub struct Queue {
    args: QueueArgs,
    /// Queues made so far.
    queues: Vec<String>,
}

impl Queue {
    /// Checks the arguments.
    ///
    /// # Errors
    /// When they contradict one another.
    pub fn new(args: &QueueArgs) -> Result<Self> {
        let own = args.partitions.is_some() || args.durability.is_some();
        if own && !args.run.private {
            return Err(refusal::usage(
                "--partitions and --durability are for a private Egret: configure the running one itself",
            ));
        }
        Ok(Self {
            args: args.clone(),
            queues: Vec::new(),
        })
    }

    fn plan(&self, stage: &Stage) -> Plan {
        let args = &self.args;
        Plan {
            callers: args.producers,
            slots: args.slots,
            batch: args.batch,
            payload_bytes: args.payload_bytes,
            rate: args.rate.map(|rate| {
                let spacing = match args.arrivals {
                    crate::cli::Arrivals::Constant => Spacing::Constant,
                    crate::cli::Arrivals::Poisson => Spacing::Poisson,
                };
                (rate, spacing)
            }),
            seed: stage.seed,
            cycles: args.cycles,
        }
    }

    fn lengths(&self) -> Lengths {
        Lengths {
            warmup_max: self.args.warmup_max,
            window: self.args.seconds,
        }
    }

    /// A queue of this measurement's own.
    async fn make_queue(&mut self, server: &Server) -> Result<String> {
        let name = format!("bench-{}-{}", std::process::id(), self.queues.len());
        let asked = v1::PutQueueRequest {
            name: name.clone(),
            settings: None,
        };
        let mut client = client(server).await?;
        client
            .put_queue(authorized(server, asked)?)
            .await
            .context("make a queue")?;
        self.queues.push(name.clone());
        Ok(name)
    }
}

type Client = QueueClient<tonic::transport::Channel>;

async fn client(server: &Server) -> Result<Client> {
    let endpoint = Endpoint::from_shared(server.door().url.clone())?;
    let channel = endpoint.connect().await.context("connect by gRPC")?;
    Ok(QueueClient::new(channel))
}

fn authorized<T>(server: &Server, message: T) -> Result<tonic::Request<T>> {
    let mut request = tonic::Request::new(message);
    let token = server.door().token.as_deref().unwrap_or_default();
    let value = format!("Bearer {token}").parse().context("the token")?;
    request.metadata_mut().insert("authorization", value);
    Ok(request)
}

/// Address and port of a server that is spoken to without TLS.
fn host(server: &Server) -> Result<String> {
    let url = server.door().url.trim_end_matches('/');
    match url.strip_prefix("http://") {
        Some(host) => Ok(host.to_owned()),
        None => bail!("{url}: tasks are sent by plain HTTP/2 only"),
    }
}

impl Scenario for Queue {
    const NAME: &'static str = "queue";

    fn parameters(&self) -> BTreeMap<String, Value> {
        let args = &self.args;
        let all: [(&str, Value); 10] = [
            ("producers", args.producers.into()),
            ("slots", args.slots.into()),
            ("payload_bytes", args.payload_bytes.into()),
            ("batch", args.batch.into()),
            ("partitions", args.partitions.into()),
            ("durability", args.durability().into()),
            ("seconds", args.seconds.as_secs_f64().into()),
            ("rate", args.rate.into()),
            ("arrivals", args.arrivals().into()),
            ("cycles", args.cycles.into()),
        ];
        all.into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn private_settings(&self) -> Vec<(String, String)> {
        let partitions = self.args.partitions.map(|count| count.to_string());
        let durability = self.args.durability().map(str::to_owned);
        [
            ("queue.partitions", partitions),
            ("queue.durability", durability),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }

    fn headline(&self) -> &str {
        "cycles_per_second"
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        host(stage.server()?)?;
        stage.subject.data_set = format!("{} bytes a task", self.args.payload_bytes);
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let server = stage.server()?.clone();
        let queue = self.make_queue(&server).await?;
        let (host, token) = (host(&server)?, server.door().token.clone());
        let directory = server
            .door()
            .data_dir
            .as_ref()
            .map(|data| data.join("queue"));
        let watch = Watch::new(server.pid(), directory);
        let plan = self.plan(stage);
        let connect = move || async move {
            egret::Egret::open(&host, token.as_deref().unwrap_or_default(), &queue).await
        };
        let driven = drive::drive(stage, &plan, self.lengths(), watch, connect).await?;
        Ok(figures::measurement(driven))
    }

    async fn clean(&mut self, stage: &mut Stage) -> Result<()> {
        if self.args.run.private {
            return Ok(());
        }
        let server = stage.server()?.clone();
        let mut client = client(&server).await?;
        for name in self.queues.drain(..) {
            let asked = v1::DeleteQueueRequest { name, force: true };
            client
                .delete_queue(authorized(&server, asked)?)
                .await
                .context("delete a queue")?;
        }
        Ok(())
    }
}
