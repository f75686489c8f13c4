//! Arguments about tasks: how they are enqueued, listed and executed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use egret_base::settings::ConfigDuration;

use super::{RetryArgs, STATES};
use crate::cli::value_parsers::{pair, value};

/// Properties of a task, whether it is enqueued now or by a schedule.
#[derive(Debug, Args)]
pub struct TaskArgs {
    /// Payload: JSON, `@FILE` for the content of a file, or `-` for standard input [default: no
    /// payload]
    pub payload: Option<String>,
    /// Send the payload as bytes, even if it is JSON
    #[arg(long)]
    pub bytes: bool,
    /// Priority from 0 to 9; tasks with a higher one are leased first [default: 5]
    #[arg(long, value_name = "PRIORITY")]
    pub priority: Option<u32>,
    /// Ordering key: tasks with the same key are leased one at a time, by priority, then in the
    /// order of enqueueing. A delayed task is ordered by the time at which it becomes ready
    #[arg(long = "key", value_name = "ORDERING_KEY")]
    pub ordering_key: Option<String>,
    /// Number of attempts until the task is dead [default: that of the queue]
    #[arg(long, value_name = "ATTEMPTS")]
    pub max_attempts: Option<u32>,
    /// Delay between the attempts.
    #[command(flatten)]
    pub retry: RetryArgs,
    /// Maximum duration of an attempt [default: that of the queue]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub timeout: Option<ConfigDuration>,
    /// Tag to find the task by; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Metadata for the worker, e.g. region=eu; may be repeated
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
    /// URL that receives a POST request when the task has ended
    #[arg(long, value_name = "URL")]
    pub callback_url: Option<String>,
}

/// Printed at the end of the help of commands that enqueue tasks.
pub(super) const RETRY: &str = "\
With any of the --retry options, the task has its own retry policy and ignores that of the queue. Options that are \
not given have the defaults above.";

/// Arguments of `egret queue enqueue …`.
#[derive(Debug, Args)]
#[command(after_help = format!(
    "{RETRY}\n\nExample: egret queue enqueue mail '{{\"to\": \"ada@example.com\"}}' --delay 5min --tag welcome"
))]
pub struct Enqueue {
    /// Name of the queue
    pub queue: String,
    /// Properties of the task.
    #[command(flatten)]
    pub task: TaskArgs,
    /// Earliest time of the first attempt, e.g. 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    pub run_at: Option<String>,
    /// Delay before the first attempt
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub delay: Option<ConfigDuration>,
    /// Unique key: within the window, a second task with it is not enqueued, even if the first one
    /// has ended; its id is printed instead
    #[arg(long, value_name = "KEY")]
    pub unique_key: Option<String>,
    /// Window of the unique key [default: that of the queue]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>, requires = "unique_key")]
    pub unique_window: Option<ConfigDuration>,
    /// Id of a task that must complete first; otherwise this task is cancelled. May be repeated
    #[arg(long = "after", value_name = "ID")]
    pub after: Vec<String>,
    /// Header `traceparent` of the W3C trace context, passed to the worker
    #[arg(long)]
    pub traceparent: Option<String>,
    /// Header `tracestate` of the W3C trace context, passed to the worker
    #[arg(long, requires = "traceparent")]
    pub tracestate: Option<String>,
    /// File of tasks, one JSON object of the API a line; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "payload", "bytes", "priority", "ordering_key", "max_attempts", "backoff", "base", "max",
        "jitter", "timeout", "tags", "metadata", "callback_url", "run_at", "delay", "unique_key",
        "after", "traceparent",
    ])]
    pub batch: Option<PathBuf>,
}

/// Arguments of `egret queue tasks …`.
#[derive(Debug, Args)]
pub struct Listing {
    /// Name of the queue
    pub queue: String,
    /// Only tasks in this state [default: every state]
    #[arg(long, value_parser = STATES)]
    pub state: Option<String>,
    /// Only tasks with this tag
    #[arg(long)]
    pub tag: Option<String>,
    /// Maximum number of tasks
    #[arg(long, default_value_t = 100, value_name = "TASKS")]
    pub limit: u64,
    /// Cursor that the previous page ended with
    #[arg(long)]
    pub cursor: Option<String>,
}

/// Arguments of `egret queue callbacks …`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CallbackListing {
    /// Operation on callbacks; without one they are listed.
    #[command(subcommand)]
    pub command: Option<CallbackCommand>,
    /// Only callbacks in this state [default: ready, leased, delayed and dead]
    #[arg(long, value_parser = STATES)]
    pub state: Option<String>,
    /// Maximum number of callbacks
    #[arg(long, default_value_t = 100, value_name = "CALLBACKS")]
    pub limit: u64,
    /// Cursor that the previous page ended with
    #[arg(long)]
    pub cursor: Option<String>,
}

/// `egret queue callbacks COMMAND`
#[derive(Debug, Subcommand)]
pub enum CallbackCommand {
    /// Delete callbacks, except those being sent
    #[command(
        after_help = "Example: egret queue callbacks delete 01a1fe82-a354-7801-8f77-000000000001"
    )]
    Delete {
        /// Ids of the callbacks, as `egret queue callbacks` shows them
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// Arguments of `egret queue work …`.
#[derive(Debug, Args)]
#[command(after_help = "\
The command reads the payload from standard input. Its environment has EGRET_TASK_ID, EGRET_QUEUE, EGRET_ATTEMPT, \
EGRET_MAX_ATTEMPTS, EGRET_PRIORITY, EGRET_ORDERING_KEY, EGRET_TAGS (separated by commas), EGRET_METADATA (JSON), \
TRACEPARENT and TRACESTATE. Exit code 0 completes the task with standard output as its result. Any other exit code \
fails the attempt with the end of standard error as its reason. The first Ctrl-C or SIGTERM waits for running \
commands; the second one stops them and releases their tasks.

Example: egret queue work mail --slots 4 -- ./send-mail")]
pub struct Work {
    /// Name of the queue
    pub queue: String,
    /// Number of commands that run at a time
    #[arg(long, default_value_t = 1, value_name = "COMMANDS", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub slots: u32,
    /// Duration of a lease without a heartbeat [default: that of the queue]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub lease: Option<ConfigDuration>,
    /// Time after which a command is killed and its attempt fails [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub timeout: Option<ConfigDuration>,
    /// Name of the worker in the history of attempts [default: host and process id]
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
    /// Exit after one task, with 1 if its attempt failed
    #[arg(long, conflicts_with = "max_tasks")]
    pub once: bool,
    /// Number of tasks after which to exit, with 1 if an attempt failed [default: no limit]
    #[arg(long, value_name = "TASKS", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tasks: Option<u64>,
    /// Exit when no task is ready, with 1 if an attempt failed
    #[arg(long)]
    pub until_empty: bool,
    /// Command to execute with its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
