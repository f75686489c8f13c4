//! `egret queue …`: tasks that are not lost.

mod callbacks;
mod cron;
mod dead;
mod enqueue;
mod outbox;
mod payload;
mod queues;
mod tail;
mod tasks;
mod work;

pub(super) use self::payload::unexpected;
pub(super) use self::work::{Backoff, interrupted};

use tasks::Deed;

use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::Output;

pub(crate) async fn run(command: cli::Queue, api: &Api, output: Output) -> Result<(), Failure> {
    use cli::Queue;
    match command {
        Queue::Create(create) => queues::create(*create, api, output).await,
        Queue::List => queues::list(api, output).await,
        Queue::Show { queue } => queues::show(&queue, api, output).await,
        Queue::Enqueue(enqueue) => enqueue::run(*enqueue, api, output).await,
        Queue::Tasks(listing) => tasks::list(&listing, api, output).await,
        Queue::Get { id } => tasks::get(&id, api, output).await,
        Queue::Wait { id, timeout } => tasks::wait(&id, timeout, api, output).await,
        Queue::Work(work) => work::run(*work, api, output).await,
        Queue::Cancel { ids } => tasks::each(Deed::Cancel, &ids, api, output).await,
        Queue::Requeue { ids } => tasks::each(Deed::Requeue, &ids, api, output).await,
        Queue::Pause { queue } => queues::flow(&queue, "pause", api, output).await,
        Queue::Resume { queue } => queues::flow(&queue, "resume", api, output).await,
        Queue::Drain { queue } => queues::flow(&queue, "drain", api, output).await,
        Queue::Purge { queue, states, yes } => {
            queues::purge(&queue, &states, yes, api, output).await
        }
        Queue::Delete { queue, force } => queues::delete(&queue, force, api, output).await,
        Queue::Callbacks(listing) => callbacks::run(&listing, api, output).await,
        Queue::CallbackKey => queues::callback_key(api, output).await,
        Queue::Dead(command) => dead::run(command, api, output).await,
        Queue::Cron(command) => cron::run(command, api, output).await,
        Queue::Tail {
            queues,
            states,
            limit,
        } => tail::run(&queues, &states, limit, api, output).await,
        Queue::Outbox(command) => outbox::run(command, api, output).await,
    }
}
