//! The command line as a tree of types: what a user may type, and the help that says so.

mod branch;
mod document;
mod page;
mod queue;
mod series;
mod value_parsers;
mod view;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use egret_base::settings::ConfigDuration;
use egret_bench_cli::{BenchCommand, EXIT_CODES};

pub use self::branch::{
    BranchCommand, BranchQuery, Connect, CreateBranch, Expire, PoolCommand, PoolSize,
    TemplateCommand, VolumeCommand,
};
pub use self::document::{
    Collection, CountKind, DatabaseArgs, Document, DocumentArgs, ImportDocuments, PageArgs,
    PatchKind, ProjectionArgs, PutDocument, QueryDocuments, SubscriptionCommand, TailDocuments,
};
pub use self::page::reference;
pub use self::queue::{
    BackoffKind, CallbackCommand, CallbackListing, CreateQueue, Cron, Dead, Enqueue, Jitter,
    Listing, MissedTickPolicy, Outbox, PutSchedule, QueueCommand, RetryArgs, TaskArgs, Work,
};
pub use self::series::{Delete, Export, ExportFormat, ImportFormat, Monitor, Range, SeriesCommand};
use self::value_parsers::{pair, value};
pub use self::view::{
    Alter, ChangeRetention, CreateView, ExplainView, ScheduleArgs, ViewArgs, ViewCommand, ViewQuery,
};

/// The command tree, for completions, manual pages, and the reference page of the command line.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The arguments with every `--set` behind the command: of a repeated option before and behind it,
/// the parser would keep only those behind.
pub(crate) fn move_settings_last(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let (mut others, mut settings) = (Vec::new(), Vec::new());
    for argument in arguments.by_ref().take_while(|argument| argument != "--") {
        let is_setting_value = settings.last().is_some_and(|last| last == "--set");
        let is_setting_option =
            argument == "--set" || argument.as_encoded_bytes().starts_with(b"--set=");
        if is_setting_value || is_setting_option {
            settings.push(argument);
        } else {
            others.push(argument);
        }
    }
    others.extend(settings);
    let rest: Vec<OsString> = arguments.collect();
    if !rest.is_empty() {
        others.push(OsString::from("--"));
        others.extend(rest);
    }
    others
}

/// Whether the arguments ask for JSON, as far as that can be told of a line that does not parse.
pub(crate) fn wants_json(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut arguments = arguments.into_iter().take_while(|argument| argument != "--");
    arguments.any(|argument| argument == "--json")
}

/// Everything on the command line.
#[derive(Debug, Parser)]
#[command(
    name = "egret",
    version,
    about = "Run database branches, a task queue, documents, views and metrics beside PostgreSQL",
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 server unreachable.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command to be run.
    #[command(subcommand)]
    pub command: Command,
}

/// Heading of the options that every command takes.
const GLOBAL_HEADING: &str = "Global options";

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = GLOBAL_HEADING)]
pub struct Global {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Address of the server; also EGRET_URL [default: as configured, http://127.0.0.1:7070]
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// File that holds the API token; EGRET_TOKEN holds the token itself [default: admin.token in
    /// the data directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificates (PEM) to trust in addition to the system's: of authorities, or of the server
    #[arg(long, global = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Client certificate (PEM), if the server requires one; also EGRET_CLIENT_CERT
    #[arg(long, global = true, value_name = "FILE")]
    pub client_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM); also EGRET_CLIENT_KEY
    #[arg(long, global = true, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// When to print colours
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Configuration file [default: egret.toml in the current directory, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Override a setting, e.g. --set egret.log_level=debug; may be repeated
    #[arg(long, global = true, value_name = "SECTION.KEY=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
}

/// When to print colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Also into files and pipes
    Always,
    /// Not even on a terminal
    Never,
}

/// The commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server until Ctrl-C or SIGTERM
    #[command(after_help = "Example: egret serve --config /etc/egret/egret.toml")]
    Serve,
    /// Run the server with a sample database, flights, and one branch of it
    #[command(after_help = "Example: egret demo")]
    Demo,
    /// Show the state of the services, PostgreSQL, the volume and all engines
    #[command(after_help = "Example: egret status")]
    Status,
    /// Show every setting with its value and origin
    #[command(after_help = "Example: egret config --set egret.log_level=debug")]
    Config {
        /// Print the reference of all settings as a Markdown page instead
        #[arg(long)]
        reference: bool,
    },
    /// Manage branches: writable copies of a database
    #[command(subcommand)]
    Branch(BranchCommand),
    /// Manage queues, their tasks and schedules, and run workers
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Query and manage series of metrics
    #[command(subcommand)]
    Series(SeriesCommand),
    /// Manage materialized views that are refreshed from changes
    #[command(subcommand)]
    View(ViewCommand),
    /// Manage collections of documents: schema, identity, references
    #[command(subcommand)]
    Collection(Collection),
    /// Read, write and follow JSON documents with enforced references
    #[command(subcommand)]
    Document(Document),
    /// Manage API tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Show Egret's time, or accept the wall clock after a jump
    #[command(subcommand)]
    Clock(ClockCommand),
    /// List the audit log: changes and refused requests, newest first
    #[command(after_help = "Example: egret audit --since 1h --operation deleteQueue")]
    Audit {
        /// Only entries that are at most this old, e.g. 1h
        #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
        since: Option<ConfigDuration>,
        /// Only entries of the token with this id
        #[arg(long, value_name = "ID")]
        token: Option<String>,
        /// Only entries of this operation, e.g. deleteQueue
        #[arg(long)]
        operation: Option<String>,
        /// Maximum number of entries, from 1 to 1000
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Run benchmarks, compare their results, and report them
    #[command(subcommand, after_help = EXIT_CODES)]
    Bench(BenchCommand),
    /// Check an external PostgreSQL, or schema egret in the databases of the running server
    #[command(after_help = "Example: egret check postgres://egret@db.example/flights")]
    Check {
        /// Connection string of the PostgreSQL [default: postgres.url, else the running server]
        postgres_url: Option<String>,
    },
    /// Remove Egret from a database: views, outbox, schema egret
    #[command(after_help = "Example: egret uninstall --database flights --force")]
    Uninstall {
        /// Connection string of a database that no Egret serves [default: ask the running server]
        postgres_url: Option<String>,
        /// Database of the running server [default: the only one in which Egret has objects]
        #[arg(long, short, conflicts_with = "postgres_url")]
        database: Option<String>,
        /// Remove the objects instead of listing them
        #[arg(long)]
        force: bool,
    },
    /// Find damaged or missing data, and repair it with --yes
    #[command(after_help = "Example: egret repair queue/001 --yes")]
    Repair {
        /// Part to repair, such as queue/001 [default: all damaged parts]
        part: Option<String>,
        /// Repair instead of listing; the damaged files are kept beside the repaired ones
        #[arg(long)]
        yes: bool,
    },
    /// Print a completion script for a shell
    #[command(after_help = "Example: egret completions bash")]
    Completions {
        /// Shell to complete commands in
        shell: clap_complete::Shell,
    },
    /// Write a manual page for every command to a directory
    #[command(after_help = "Example: egret man /usr/local/share/man/man1")]
    Man {
        /// Directory of the pages; created if it does not exist
        #[arg(value_name = "DIR", required_unless_present = "reference")]
        directory: Option<PathBuf>,
        /// Print the help of all commands as a Markdown page instead
        #[arg(long, conflicts_with = "directory")]
        reference: bool,
    },
}

/// Subcommands of `egret clock …`.
#[derive(Debug, Subcommand)]
pub enum ClockCommand {
    /// Show Egret's time, the wall clock, and whether Egret's time is held
    #[command(after_help = "Example: egret clock show")]
    Show,
    /// Set Egret's time to the wall clock, forward or back
    #[command(after_help = "Example: egret clock release")]
    Release,
}

/// Subcommands of `egret token …`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print its secret, which is not stored
    #[command(
        after_help = "Example: egret token create worker --scope queue/mail:work --scope queue/mail:read"
    )]
    Create {
        /// Name of the token, e.g. ci
        name: String,
        /// Scope of the token: admin, metrics:read, status:read, or branches, documents, queue,
        /// series or views with `:read`, `:write` or `:*`. Queue also has `:produce`, `:work` and
        /// `:operate`. `queue/NAME:work` is limited to one queue; branches, collections and views
        /// are named alike. May be repeated
        #[arg(long = "scope", value_name = "SCOPE", required = true)]
        scopes: Vec<String>,
        /// Claim of the token, e.g. school=255901; may be repeated, also with the same name
        #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = pair)]
        claims: Vec<(String, String)>,
        /// Tenant of the token [default: that of the calling token]
        #[arg(long)]
        tenant: Option<String>,
        /// Time until the token expires, e.g. 90d [default: never]
        #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
        ttl: Option<ConfigDuration>,
    },
    /// List tokens, without their secrets
    #[command(after_help = "Example: egret token list")]
    List,
    /// Revoke a token
    #[command(after_help = "Example: egret token revoke kzdh6z57c3mp")]
    Revoke {
        /// Id of the token, as `egret token list` shows it
        id: String,
        /// Revoke even the last token of tenant `default` with scope `admin`
        #[arg(long)]
        force: bool,
    },
}

#[cfg(test)]
mod tests;
