//! `egret queue …`: tasks that are not lost.

mod outbox;

use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::Output;

pub(crate) async fn run(command: cli::Queue, api: &Api, output: Output) -> Result<(), Failure> {
    match command {
        cli::Queue::Outbox(command) => outbox::run(command, api, output).await,
    }
}
