//! `egret queue …`

mod outbox;
mod tasks;

use clap::{Args, Subcommand, ValueEnum};
use egret_base::settings::Span;

pub use self::outbox::Outbox;
pub use self::tasks::{CallbackCommand, CallbackListing, Enqueue, Listing, Produced, Work};
use super::value;

/// `egret queue …`
#[derive(Debug, Subcommand)]
pub enum Queue {
    /// Make a queue, or change one: what is given changes, the rest stays
    Create(Box<Create>),
    /// List the queues with their counts
    List,
    /// Show a queue: its counts and settings
    Show {
        /// The queue
        queue: String,
    },
    /// Enqueue a task, or a file of them; prints ids
    Enqueue(Box<Enqueue>),
    /// List the tasks of a queue: by state, then by partition, there in the order in which they came into
    /// the state
    Tasks(Listing),
    /// Show a task: payload, result, history of attempts
    Get {
        /// The task's id
        id: String,
    },
    /// Wait until a task has ended and print its result; exit code 1 unless it is completed
    Wait {
        /// The task's id
        id: String,
        /// Give up after this time, with exit code 1
        #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
        timeout: Option<Span>,
    },
    /// Run a command for each task of a queue, until Ctrl-C
    Work(Box<Work>),
    /// Cancel tasks that have not ended
    Cancel {
        /// The tasks' ids
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Put dead or cancelled tasks back: ready at once, attempts at zero, waiting for no other task
    Requeue {
        /// The tasks' ids
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Hand nothing out until the queue is resumed
    Pause {
        /// The queue
        queue: String,
    },
    /// End a pause or a drain
    Resume {
        /// The queue
        queue: String,
    },
    /// Take nothing in until the queue is resumed; work goes on
    Drain {
        /// The queue
        queue: String,
    },
    /// Delete tasks of a queue, leased ones excepted; says what it would delete without --yes
    Purge {
        /// The queue
        queue: String,
        /// Those in this state; may be repeated [default: every state but leased]
        #[arg(long = "state", value_name = "STATE", value_parser = PURGED)]
        states: Vec<String>,
        /// Do it
        #[arg(long)]
        yes: bool,
    },
    /// Delete a queue
    Delete {
        /// The queue
        queue: String,
        /// Even with tasks in it or schedules for it, which go with it
        #[arg(long)]
        force: bool,
    },
    /// List callbacks that have not arrived: those to be sent (again), and those given up (`dead`)
    Callbacks(CallbackListing),
    /// Print the key with which callbacks of the token's tenant are signed
    CallbackKey,
    /// Tasks that failed for good
    #[command(subcommand)]
    Dead(Dead),
    /// Schedules: a task per tick of a cron expression
    #[command(subcommand)]
    Cron(Cron),
    /// Show state changes of tasks as they come
    Tail {
        /// Only those of these queues
        queues: Vec<String>,
        /// Only changes into this state; may be repeated
        #[arg(long = "state", value_name = "STATE", value_parser = STATES)]
        states: Vec<String>,
        /// End after this many changes
        #[arg(long, value_name = "CHANGES")]
        limit: Option<u64>,
    },
    /// Tasks from inside a transaction: `egret.enqueue` in a database
    #[command(subcommand)]
    Outbox(Outbox),
}

/// The states of tasks.
const STATES: [&str; 7] = [
    "waiting",
    "delayed",
    "ready",
    "leased",
    "completed",
    "dead",
    "cancelled",
];

/// The states in which tasks can be purged.
const PURGED: [&str; 6] = [
    "waiting",
    "delayed",
    "ready",
    "completed",
    "dead",
    "cancelled",
];

/// `egret queue create …`
#[derive(Debug, Args)]
pub struct Create {
    /// The queue: letters, digits and `-_.:`
    pub queue: String,
    /// Attempts before a task is dead [default: 5]
    #[arg(long, value_name = "ATTEMPTS")]
    pub max_attempts: Option<u32>,
    /// How long a task waits after a failed attempt.
    #[command(flatten)]
    pub retry: Retry,
    /// How long a lease lasts without a heartbeat [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub lease: Option<Span>,
    /// The longest that an attempt may take; 0s: any time [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub timeout: Option<Span>,
    /// Tasks leased at a time; 0: any number [default: 0]
    #[arg(long, value_name = "TASKS")]
    pub concurrency: Option<u32>,
    /// Tasks leased at a time of one ordering key; 0: any number [default: 1]
    #[arg(long, value_name = "TASKS")]
    pub key_concurrency: Option<u32>,
    /// Tasks handed out in a second; 0: any number [default: 0]
    #[arg(long, value_name = "TASKS")]
    pub rate: Option<f64>,
    /// Tasks handed out at once after a pause; 0: a second's worth [default: 0]
    #[arg(long, value_name = "TASKS")]
    pub rate_burst: Option<u32>,
    /// How long completed tasks are kept; 0s: for ever [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub keep_completed: Option<Span>,
    /// How many completed tasks are kept; 0: all [default: 1000000]
    #[arg(long, value_name = "TASKS")]
    pub keep_completed_count: Option<u64>,
    /// How long dead tasks are kept; 0s: for ever [default: 30d]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub keep_dead: Option<Span>,
    /// How many dead tasks are kept; 0: all [default: 1000000]
    #[arg(long, value_name = "TASKS")]
    pub keep_dead_count: Option<u64>,
    /// How long cancelled tasks are kept; 0s: for ever [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub keep_cancelled: Option<Span>,
    /// How many cancelled tasks are kept; 0: all [default: 1000000]
    #[arg(long, value_name = "TASKS")]
    pub keep_cancelled_count: Option<u64>,
    /// How long a unique key is remembered [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub unique_window: Option<Span>,
    /// A task that has waited so long counts as one priority higher; 0s: never [default: 1min]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub aging: Option<Span>,
}

/// How long a task waits after a failed attempt.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Retry {
    /// How the delay grows from one failed attempt to the next [default: exponential]
    #[arg(long = "retry-backoff", value_enum, value_name = "HOW")]
    pub backoff: Option<Backoff>,
    /// The delay after the first failed attempt [default: 1s]
    #[arg(long = "retry-base", value_name = "DURATION", value_parser = value::<Span>)]
    pub base: Option<Span>,
    /// The longest delay [default: 10min]
    #[arg(long = "retry-max", value_name = "DURATION", value_parser = value::<Span>)]
    pub max: Option<Span>,
    /// What chance does to the delay [default: full]
    #[arg(long = "retry-jitter", value_enum, value_name = "HOW")]
    pub jitter: Option<Jitter>,
}

/// How a delay grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backoff {
    /// The same each time
    Fixed,
    /// The first delay times the number of failed attempts
    Linear,
    /// Doubled with each failed attempt
    Exponential,
}

/// What chance does to a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Jitter {
    /// Nothing
    None,
    /// Anything from zero to the delay
    Full,
    /// Half of it, and up to as much again
    Equal,
}

/// `egret queue dead …`
#[derive(Debug, Subcommand)]
pub enum Dead {
    /// List the dead tasks of a queue
    List {
        /// The queue
        queue: String,
        /// Only those that carry this tag
        #[arg(long)]
        tag: Option<String>,
        /// How many at most
        #[arg(long, default_value_t = 100, value_name = "TASKS")]
        limit: u64,
        /// Where to go on: what the listing before has ended with
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Put dead tasks back, with their attempts at zero
    Requeue {
        /// The queue
        queue: String,
        /// These tasks alone
        #[arg(conflicts_with = "limit")]
        ids: Vec<String>,
        /// How many, the oldest first [default: all]
        #[arg(long, value_name = "TASKS")]
        limit: Option<u64>,
    },
    /// Delete dead tasks; says how many it would delete without ids or --yes
    Delete {
        /// The queue
        queue: String,
        /// These tasks alone
        ids: Vec<String>,
        /// Delete all of them
        #[arg(long, conflicts_with = "ids")]
        yes: bool,
    },
}

/// `egret queue cron …`
#[derive(Debug, Subcommand)]
pub enum Cron {
    /// Make a schedule, or replace the one of this name
    Put(Box<Put>),
    /// List the schedules
    List,
    /// Show a schedule with its next runs
    Show {
        /// The schedule
        name: String,
    },
    /// Make no task until the schedule is resumed
    Pause {
        /// The schedule
        name: String,
    },
    /// Go on with the next run from now
    Resume {
        /// The schedule
        name: String,
    },
    /// Delete a schedule; the tasks it has made stay
    Delete {
        /// The schedule
        name: String,
    },
}

/// `egret queue cron put …`
#[derive(Debug, Args)]
#[command(after_help = tasks::RETRY)]
pub struct Put {
    /// The schedule
    pub name: String,
    /// The queue of its tasks
    pub queue: String,
    /// Minute, hour, day of month, month, day of week; seconds may go first: '30 8 * * MON-FRI'; or
    /// @hourly, @daily, @weekly, @monthly, @yearly
    pub cron: String,
    /// What each task is like.
    #[command(flatten)]
    pub task: Produced,
    /// A time zone of the IANA database, e.g. Europe/Zurich [default: UTC]
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<String>,
    /// What becomes of runs that were missed while Egret was down
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub missed: Missed,
    /// Do not begin before it is resumed
    #[arg(long)]
    pub paused: bool,
}

/// What becomes of missed runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Missed {
    /// They are left out
    #[default]
    Skip,
    /// One task stands for all of them
    One,
    /// A task for each, up to 1,000
    All,
}
