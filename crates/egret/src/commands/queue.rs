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
pub(super) use self::work::{ReconnectBackoff, wait_for_interrupt};

use tasks::TaskAction;

use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::Output;

pub(crate) async fn run(
    command: cli::QueueCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    use cli::QueueCommand;
    match command {
        QueueCommand::Create(create) => queues::create(*create, api, output).await,
        QueueCommand::List => queues::list(api, output).await,
        QueueCommand::Show { queue } => queues::show(&queue, api, output).await,
        QueueCommand::Enqueue(enqueue) => enqueue::run(*enqueue, api, output).await,
        QueueCommand::Tasks(listing) => tasks::list(&listing, api, output).await,
        QueueCommand::Get { id } => tasks::get(&id, api, output).await,
        QueueCommand::Wait { id, timeout } => tasks::wait(&id, timeout, api, output).await,
        QueueCommand::Work(work) => work::run(*work, api, output).await,
        QueueCommand::Cancel { ids } => {
            tasks::apply_to_each(TaskAction::Cancel, &ids, api, output).await
        }
        QueueCommand::Requeue { ids } => {
            tasks::apply_to_each(TaskAction::Requeue, &ids, api, output).await
        }
        QueueCommand::Pause { queue } => queues::set_flow(&queue, "pause", api, output).await,
        QueueCommand::Resume { queue } => queues::set_flow(&queue, "resume", api, output).await,
        QueueCommand::Drain { queue } => queues::set_flow(&queue, "drain", api, output).await,
        QueueCommand::Purge { queue, states, yes } => {
            queues::purge(&queue, &states, yes, api, output).await
        }
        QueueCommand::Delete { queue, force } => queues::delete(&queue, force, api, output).await,
        QueueCommand::Callbacks(listing) => callbacks::run(&listing, api, output).await,
        QueueCommand::CallbackKey => queues::callback_key(api, output).await,
        QueueCommand::Dead(command) => dead::run(command, api, output).await,
        QueueCommand::Cron(command) => cron::run(command, api, output).await,
        QueueCommand::Tail { queues, states, limit } => {
            tail::run(&queues, &states, limit, api, output).await
        }
        QueueCommand::Outbox(command) => outbox::run(command, api, output).await,
    }
}
