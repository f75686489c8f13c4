//! `egret queue …`

mod outbox;
mod tasks;

use clap::{Args, Subcommand, ValueEnum};
use egret_base::settings::ConfigDuration;

pub use self::outbox::Outbox;
use self::tasks::RETRY;
pub use self::tasks::{CallbackCommand, CallbackListing, Enqueue, Listing, TaskArgs, Work};
use super::value_parsers::value;

/// Subcommands of `egret queue …`.
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// Create a queue, or change the given settings of an existing one
    #[command(after_help = "Example: egret queue create mail --max-attempts 3 --lease 1min")]
    Create(Box<CreateQueue>),
    /// List queues with their counts of tasks
    #[command(after_help = "Example: egret queue list")]
    List,
    /// Show the counts and settings of a queue
    #[command(after_help = "Example: egret queue show mail")]
    Show {
        /// Name of the queue
        queue: String,
    },
    /// Enqueue a task, or a file of tasks, and print the ids
    Enqueue(Box<Enqueue>),
    /// List the tasks of a queue by state, within a state by partition, oldest change first
    #[command(after_help = "Example: egret queue tasks mail --state dead")]
    Tasks(Listing),
    /// Show a task with its payload, result and attempts
    #[command(after_help = "Example: egret queue get 01a1fe82-a354-7801-8f77-000000000001")]
    Get {
        /// Id of the task
        id: String,
    },
    /// Wait for the end of a task and print its result; exit with 1 if it is not completed
    #[command(
        after_help = "Example: egret queue wait 01a1fe82-a354-7801-8f77-000000000001 --timeout 30s"
    )]
    Wait {
        /// Id of the task
        id: String,
        /// Maximum time to wait; then exit with 1 [default: no limit]
        #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
        timeout: Option<ConfigDuration>,
    },
    /// Run a worker that executes a command for each task of a queue
    Work(Box<Work>),
    /// Cancel tasks that have not ended
    #[command(after_help = "Example: egret queue cancel 01a1fe82-a354-7801-8f77-000000000001")]
    Cancel {
        /// Ids of the tasks
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Make dead or cancelled tasks ready, with no attempts counted and no predecessors
    #[command(after_help = "Example: egret queue requeue 01a1fe82-a354-7801-8f77-000000000001")]
    Requeue {
        /// Ids of the tasks
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Pause a queue: it accepts tasks and leases none
    #[command(after_help = "Example: egret queue pause mail")]
    Pause {
        /// Name of the queue
        queue: String,
    },
    /// Resume a queue that is paused or drained
    #[command(after_help = "Example: egret queue resume mail")]
    Resume {
        /// Name of the queue
        queue: String,
    },
    /// Drain a queue: it leases tasks and accepts none
    #[command(after_help = "Example: egret queue drain mail")]
    Drain {
        /// Name of the queue
        queue: String,
    },
    /// Delete the tasks of a queue, except leased ones
    #[command(after_help = "Example: egret queue purge mail --state completed --yes")]
    Purge {
        /// Name of the queue
        queue: String,
        /// Only tasks in this state; may be repeated [default: every state but leased]
        #[arg(long = "state", value_name = "STATE", value_parser = PURGED)]
        states: Vec<String>,
        /// Delete the tasks instead of counting them
        #[arg(long)]
        yes: bool,
    },
    /// Delete a queue
    #[command(after_help = "Example: egret queue delete mail --force")]
    Delete {
        /// Name of the queue
        queue: String,
        /// Also delete its tasks, and the schedules that enqueue to it
        #[arg(long)]
        force: bool,
    },
    /// List undelivered callbacks, or delete them
    #[command(after_help = "Example: egret queue callbacks --state dead")]
    Callbacks(CallbackListing),
    /// Print the key that signs callbacks of the token's tenant
    #[command(after_help = "Example: egret queue callback-key")]
    CallbackKey,
    /// Manage dead tasks, whose last attempt has failed
    #[command(subcommand)]
    Dead(Dead),
    /// Manage schedules, which enqueue a task at each tick of a cron expression
    #[command(subcommand)]
    Cron(Cron),
    /// Follow the state changes of tasks
    #[command(after_help = "Example: egret queue tail mail --state dead")]
    Tail {
        /// Only changes of tasks in these queues [default: all queues]
        queues: Vec<String>,
        /// Only changes into this state; may be repeated [default: every state]
        #[arg(long = "state", value_name = "STATE", value_parser = STATES)]
        states: Vec<String>,
        /// Number of changes after which to exit [default: no limit]
        #[arg(long, value_name = "CHANGES")]
        limit: Option<u64>,
    },
    /// Manage outboxes, which enqueue tasks within transactions of a database
    #[command(subcommand)]
    Outbox(Outbox),
}

/// The states of tasks.
const STATES: [&str; 7] =
    ["waiting", "delayed", "ready", "leased", "completed", "dead", "cancelled"];

/// The states in which tasks can be purged.
const PURGED: [&str; 6] = ["waiting", "delayed", "ready", "completed", "dead", "cancelled"];

/// Arguments of `egret queue create …`.
#[derive(Debug, Args)]
pub struct CreateQueue {
    /// Name of the queue: letters, digits and `-_.:`
    pub queue: String,
    /// Number of attempts until a task is dead [default: 5]
    #[arg(long, value_name = "ATTEMPTS")]
    pub max_attempts: Option<u32>,
    /// How long a task waits after a failed attempt.
    #[command(flatten)]
    pub retry: RetryArgs,
    /// Duration of a lease without a heartbeat [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub lease: Option<ConfigDuration>,
    /// Maximum duration of an attempt; 0s: no limit [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub timeout: Option<ConfigDuration>,
    /// Maximum number of leased tasks; 0: no limit [default: 0]
    #[arg(long, value_name = "TASKS")]
    pub concurrency: Option<u32>,
    /// Maximum number of leased tasks of one ordering key; 0: no limit [default: 1]
    #[arg(long, value_name = "TASKS")]
    pub key_concurrency: Option<u32>,
    /// Maximum rate of leases, in tasks per second; 0: no limit [default: 0]
    #[arg(long, value_name = "TASKS")]
    pub rate: Option<f64>,
    /// Maximum burst of leases after idle time, in tasks; 0: one second of the rate [default: 0]
    #[arg(long, value_name = "TASKS")]
    pub rate_burst: Option<u32>,
    /// Retention of completed tasks; 0s: no limit [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub keep_completed: Option<ConfigDuration>,
    /// Maximum number of retained completed tasks; 0: no limit [default: 1000000]
    #[arg(long, value_name = "TASKS")]
    pub keep_completed_count: Option<u64>,
    /// Retention of dead tasks; 0s: no limit [default: 30d]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub keep_dead: Option<ConfigDuration>,
    /// Maximum number of retained dead tasks; 0: no limit [default: 1000000]
    #[arg(long, value_name = "TASKS")]
    pub keep_dead_count: Option<u64>,
    /// Retention of cancelled tasks; 0s: no limit [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub keep_cancelled: Option<ConfigDuration>,
    /// Maximum number of retained cancelled tasks; 0: no limit [default: 1000000]
    #[arg(long, value_name = "TASKS")]
    pub keep_cancelled_count: Option<u64>,
    /// Window in which a unique key is not accepted twice [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub unique_window: Option<ConfigDuration>,
    /// Waiting time that raises the priority of a task by one; 0s: never [default: 1min]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub aging: Option<ConfigDuration>,
}

/// How long a task waits after a failed attempt.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct RetryArgs {
    /// Growth of the delay from one failed attempt to the next [default: exponential]
    #[arg(long = "retry-backoff", value_enum, value_name = "BACKOFF")]
    pub backoff: Option<BackoffKind>,
    /// Delay after the first failed attempt [default: 1s]
    #[arg(long = "retry-base", value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub base: Option<ConfigDuration>,
    /// Maximum delay [default: 10min]
    #[arg(long = "retry-max", value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub max: Option<ConfigDuration>,
    /// Random variation of the delay [default: full]
    #[arg(long = "retry-jitter", value_enum, value_name = "JITTER")]
    pub jitter: Option<Jitter>,
}

/// How a delay grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackoffKind {
    /// The same delay each time
    Fixed,
    /// The first delay, multiplied by the number of failed attempts
    Linear,
    /// Twice the previous delay
    Exponential,
}

/// Random variation of a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Jitter {
    /// Exactly the calculated delay
    None,
    /// Uniformly distributed from zero to the delay
    Full,
    /// Uniformly distributed from half of the delay to the delay
    Equal,
}

/// Subcommands of `egret queue dead …`.
#[derive(Debug, Subcommand)]
pub enum Dead {
    /// List the dead tasks of a queue
    #[command(after_help = "Example: egret queue dead list mail --tag welcome")]
    List {
        /// Name of the queue
        queue: String,
        /// Only tasks with this tag
        #[arg(long)]
        tag: Option<String>,
        /// Maximum number of tasks
        #[arg(long, default_value_t = 100, value_name = "TASKS")]
        limit: u64,
        /// Cursor that the previous page ended with
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Make dead tasks ready again, with no attempts counted
    #[command(after_help = "Example: egret queue dead requeue mail --limit 100")]
    Requeue {
        /// Name of the queue
        queue: String,
        /// Ids of the tasks [default: all]
        #[arg(conflicts_with = "limit")]
        ids: Vec<String>,
        /// Maximum number of tasks, oldest first [default: all]
        #[arg(long, value_name = "TASKS")]
        limit: Option<u64>,
    },
    /// Delete dead tasks
    #[command(after_help = "Example: egret queue dead delete mail --yes")]
    Delete {
        /// Name of the queue
        queue: String,
        /// Ids of the tasks to delete
        ids: Vec<String>,
        /// Delete all dead tasks instead of counting them
        #[arg(long, conflicts_with = "ids")]
        yes: bool,
    },
}

/// Subcommands of `egret queue cron …`.
#[derive(Debug, Subcommand)]
pub enum Cron {
    /// Create or replace a schedule
    Put(Box<PutSchedule>),
    /// List schedules
    #[command(after_help = "Example: egret queue cron list")]
    List,
    /// Show a schedule with its next ticks
    #[command(after_help = "Example: egret queue cron show daily-report")]
    Show {
        /// Name of the schedule
        name: String,
    },
    /// Pause a schedule
    #[command(after_help = "Example: egret queue cron pause daily-report")]
    Pause {
        /// Name of the schedule
        name: String,
    },
    /// Resume a paused schedule with its next tick
    #[command(after_help = "Example: egret queue cron resume daily-report")]
    Resume {
        /// Name of the schedule
        name: String,
    },
    /// Delete a schedule; its tasks stay
    #[command(after_help = "Example: egret queue cron delete daily-report")]
    Delete {
        /// Name of the schedule
        name: String,
    },
}

/// Arguments of `egret queue cron put …`.
#[derive(Debug, Args)]
#[command(after_help = format!(
    "{RETRY}\n\nExample: egret queue cron put daily reports '30 8 * * MON-FRI' --time-zone Europe/Zurich"
))]
pub struct PutSchedule {
    /// Name of the schedule
    pub name: String,
    /// Queue to enqueue to
    pub queue: String,
    /// Cron expression: minute, hour, day of month, month, day of week, e.g. '30 8 * * MON-FRI';
    /// optionally with seconds first; or @hourly, @daily, @weekly, @monthly, @yearly
    pub cron: String,
    /// What each task is like.
    #[command(flatten)]
    pub task: TaskArgs,
    /// Time zone of the IANA database, e.g. Europe/Zurich [default: UTC]
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<String>,
    /// Policy for ticks that were missed, e.g. while Egret did not run
    #[arg(long, value_enum, default_value_t, value_name = "POLICY")]
    pub missed: MissedTickPolicy,
    /// Create the schedule paused
    #[arg(long)]
    pub paused: bool,
}

/// Policy for missed ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MissedTickPolicy {
    /// Enqueue no task for missed ticks
    #[default]
    Skip,
    /// Enqueue one task for all missed ticks
    One,
    /// Enqueue a task for each missed tick, up to 1,000
    All,
}
