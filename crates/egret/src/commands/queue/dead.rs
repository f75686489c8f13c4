//! `egret queue dead …`: tasks that failed for good.

use serde::Deserialize;
use serde_json::json;

use super::queues;
use super::tasks::{self, TaskAction};
use crate::api::Api;
use crate::cli::{Dead, Listing};
use crate::commands::plural::{is_or_are, number_of};
use crate::failure::Failure;
use crate::output::Output;

const DEAD_STATE: &str = "dead";

#[derive(Debug, Deserialize)]
struct RequeueResult {
    requeued: u64,
}

pub(super) async fn run(command: Dead, api: &Api, output: Output) -> Result<(), Failure> {
    match command {
        Dead::List { queue, tag, limit, cursor } => {
            let listing = Listing { queue, state: Some(DEAD_STATE.to_owned()), tag, limit, cursor };
            tasks::list(&listing, api, output).await
        }
        Dead::Requeue { queue, ids, limit } if ids.is_empty() => {
            let path = ["queues", &queue, "requeue-dead"];
            let answer = api.post(&path, json!({"limit": limit})).await?;
            output.print_answer(&answer, |result: RequeueResult| {
                let tasks = number_of(result.requeued, "dead task");
                format!("{tasks} of {queue} {} put back", is_or_are(result.requeued))
            })
        }
        Dead::Requeue { ids, .. } => {
            tasks::apply_to_each(TaskAction::Requeue, &ids, api, output).await
        }
        Dead::Delete { queue, ids, yes } if ids.is_empty() => {
            queues::purge(&queue, &[DEAD_STATE.to_owned()], yes, api, output).await
        }
        Dead::Delete { ids, .. } => {
            tasks::apply_to_each(TaskAction::Delete, &ids, api, output).await
        }
    }
}
