//! What is said about tasks: how they are enqueued, listed and worked on.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use egret_base::settings::Span;

use super::{Retry, STATES};
use crate::cli::{pair, value};

/// What a task is like, whether it is enqueued now or by a schedule.
#[derive(Debug, Args)]
pub struct Produced {
    /// What is to be worked on: JSON, `@FILE` for a file's content, `-` for standard input; without it
    /// the task has no payload
    pub payload: Option<String>,
    /// The payload is bytes, whatever it looks like
    #[arg(long)]
    pub bytes: bool,
    /// 0 to 9; 9 goes first [default: 5]
    #[arg(long, value_name = "PRIORITY")]
    pub priority: Option<u32>,
    /// Tasks with the same key go one at a time, those of one priority in the order in which they were
    /// enqueued; a delayed one takes its place when it becomes ready
    #[arg(long = "key", value_name = "ORDERING_KEY")]
    pub ordering_key: Option<String>,
    /// Attempts before it is dead [default: as the queue says]
    #[arg(long, value_name = "ATTEMPTS")]
    pub max_attempts: Option<u32>,
    /// How long it waits between them.
    #[command(flatten)]
    pub retry: Retry,
    /// The longest that an attempt may take [default: as the queue says]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub timeout: Option<Span>,
    /// For people to find it by; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// A name with a value, handed to the worker; may be repeated
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
    /// Told by POST when the task has ended
    #[arg(long, value_name = "URL")]
    pub callback_url: Option<String>,
}

/// Shown beneath the help of whatever makes tasks.
pub(super) const RETRY: &str = "\
With any of the --retry options the task has a policy of its own in place of the queue's: of it, what is not given is \
the default named above.";

/// `egret queue enqueue …`
#[derive(Debug, Args)]
#[command(after_help = RETRY)]
pub struct Enqueue {
    /// The queue
    pub queue: String,
    /// What the task is like.
    #[command(flatten)]
    pub task: Produced,
    /// Not before this time, e.g. 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    pub run_at: Option<String>,
    /// Not before so much time has passed
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub delay: Option<Span>,
    /// A second task with this key within the window is the first one, whatever has become of that
    #[arg(long, value_name = "KEY")]
    pub unique_key: Option<String>,
    /// How long the unique key is remembered [default: as the queue says]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>, requires = "unique_key")]
    pub unique_window: Option<Span>,
    /// A task that must complete before, or this one is cancelled; may be repeated
    #[arg(long = "after", value_name = "ID")]
    pub after: Vec<String>,
    /// W3C trace context, handed to the worker
    #[arg(long)]
    pub traceparent: Option<String>,
    /// W3C trace context, handed to the worker
    #[arg(long, requires = "traceparent")]
    pub tracestate: Option<String>,
    /// A file of tasks, a JSON object on each line, as the API takes them; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "payload", "bytes", "priority", "ordering_key", "max_attempts", "backoff", "base", "max",
        "jitter", "timeout", "tags", "metadata", "callback_url", "run_at", "delay", "unique_key",
        "after", "traceparent",
    ])]
    pub batch: Option<PathBuf>,
}

/// `egret queue tasks …`
#[derive(Debug, Args)]
pub struct Listing {
    /// The queue
    pub queue: String,
    /// Only those in this state
    #[arg(long, value_parser = STATES)]
    pub state: Option<String>,
    /// Only those that carry this tag
    #[arg(long)]
    pub tag: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 100, value_name = "TASKS")]
    pub limit: u64,
    /// Where to go on: what the listing before has ended with
    #[arg(long)]
    pub cursor: Option<String>,
}

/// `egret queue callbacks …`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CallbackListing {
    /// What is done with callbacks; without it they are listed.
    #[command(subcommand)]
    pub command: Option<CallbackCommand>,
    /// Only those in this state [default: ready, leased, delayed and dead]
    #[arg(long, value_parser = STATES)]
    pub state: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 100, value_name = "CALLBACKS")]
    pub limit: u64,
    /// Where to go on: what the listing before has ended with
    #[arg(long)]
    pub cursor: Option<String>,
}

/// `egret queue callbacks COMMAND`
#[derive(Debug, Subcommand)]
pub enum CallbackCommand {
    /// Delete callbacks that are not being sent
    Delete {
        /// The callbacks' ids, as the listing shows them
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// `egret queue work …`
#[derive(Debug, Args)]
#[command(after_help = "\
The command gets the payload on standard input, and EGRET_TASK_ID, EGRET_QUEUE, EGRET_ATTEMPT, EGRET_MAX_ATTEMPTS, \
EGRET_PRIORITY, EGRET_ORDERING_KEY, EGRET_TAGS (comma between them), EGRET_METADATA (JSON), TRACEPARENT and TRACESTATE \
in its environment. Exit code 0 completes the task, standard output is its result; any other fails the attempt, the end \
of standard error says why. The first Ctrl-C or SIGTERM lets what runs finish, the second gives it back.")]
pub struct Work {
    /// The queue
    pub queue: String,
    /// How many commands run at a time
    #[arg(long, default_value_t = 1, value_name = "COMMANDS", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub slots: u32,
    /// How long a lease lasts without a heartbeat [default: as the queue says]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub lease: Option<Span>,
    /// Kill a command that runs for longer, and fail the attempt
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub timeout: Option<Span>,
    /// Who works, for people to read [default: host and process id]
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
    /// End after one task; exit code 1 where its attempt failed
    #[arg(long, conflicts_with = "max_tasks")]
    pub once: bool,
    /// End after so many tasks; exit code 1 where an attempt failed
    #[arg(long, value_name = "TASKS", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tasks: Option<u64>,
    /// End when no task can be handed out at the moment; exit code 1 where an attempt failed
    #[arg(long)]
    pub until_empty: bool,
    /// The command with its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
