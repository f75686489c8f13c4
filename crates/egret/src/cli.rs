//! The command line as a tree of types: what a user may type, and the help that says so.

mod document;
mod queue;
mod series;
mod view;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use egret_base::settings::{Size, Span, Value};
use egret_bench::cli::{BenchCommand, EXIT_CODES};

pub use self::document::{
    Collection, CountKind, Document, ImportDocuments, OneDocument, Paged, PatchKind, Place,
    PutDocument, QueryDocuments, Shape, Subscription, TailDocuments,
};
pub use self::queue::{
    Backoff, CallbackCommand, CallbackListing, Create as CreateQueue, Cron, Dead, Enqueue, Jitter,
    Listing, Missed, Outbox, Produced, Put, Queue, Retry, Work,
};
pub use self::series::{Delete, Export, ExportFormat, ImportFormat, Monitor, Range, Series};
pub use self::view::{
    Alter, Create as CreateView, Explain as ExplainView, Kept, Named, Query as ViewQuery, View,
    When,
};

/// The command tree, for completions and for the test that checks the documentation.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The arguments with every `--set` behind the command: of a repeated option before and behind it,
/// the parser would keep only those behind.
pub fn settings_last(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let (mut kept, mut settings) = (Vec::new(), Vec::new());
    for argument in arguments.by_ref().take_while(|argument| argument != "--") {
        let follows = settings.last().is_some_and(|last| last == "--set");
        let starts = argument == "--set" || argument.as_encoded_bytes().starts_with(b"--set=");
        if follows || starts {
            settings.push(argument);
        } else {
            kept.push(argument);
        }
    }
    kept.extend(settings);
    let rest: Vec<OsString> = arguments.collect();
    if !rest.is_empty() {
        kept.push(OsString::from("--"));
        kept.extend(rest);
    }
    kept
}

/// Whether the arguments ask for JSON, as far as that can be told of a line that does not parse.
pub fn wants_json(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut arguments = arguments
        .into_iter()
        .take_while(|argument| argument != "--");
    arguments.any(|argument| argument == "--json")
}

/// Everything on the command line.
#[derive(Debug, Parser)]
#[command(
    name = "egret",
    version,
    about = "Egret rides beside PostgreSQL: branches of a database in well under a second",
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 server unreachable.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Print JSON instead of text for people
    #[arg(long, global = true)]
    pub json: bool,
    /// The server's address; also EGRET_URL [default: as configured, http://127.0.0.1:7070]
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// A file that holds the token; also EGRET_TOKEN [default: admin.token in the data directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificates (PEM) to trust beside those of this machine: of authorities, or the server's own
    #[arg(long, global = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// This client's certificate (PEM), for a server that asks for one; also EGRET_CLIENT_CERT
    #[arg(long, global = true, value_name = "FILE")]
    pub client_cert: Option<PathBuf>,
    /// The private key of the client's certificate (PEM); also EGRET_CLIENT_KEY
    #[arg(long, global = true, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// The configuration file [default: egret.toml in the current directory, where there is one]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Override one setting, e.g. --set egret.log_level=debug; may be repeated
    #[arg(long, global = true, value_name = "SECTION.KEY=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server until Ctrl-C
    Serve,
    /// Run the server with the flights database and a branch of it to try
    Demo,
    /// Show what runs: services, PostgreSQL, volume, branches, queue, series, views, documents
    Status,
    /// Show every setting with its value and where it came from
    Config {
        /// Print a Markdown page about every setting instead
        #[arg(long)]
        reference: bool,
    },
    /// Writable copies of a database
    #[command(subcommand)]
    Branch(Branch),
    /// Tasks that are not lost
    #[command(subcommand)]
    Queue(Queue),
    /// Metrics, kept and asked with PromQL
    #[command(subcommand)]
    Series(Series),
    /// Results of queries, kept fresh
    #[command(subcommand)]
    View(View),
    /// Kinds of documents: what they may be, what tells them apart, what they refer to
    #[command(subcommand)]
    Collection(Collection),
    /// JSON documents whose references never dangle
    #[command(subcommand)]
    Document(Document),
    /// Tokens that open the doors
    #[command(subcommand)]
    Token(Token),
    /// How Egret's time follows the machine's, and what to do after its wall clock has jumped
    #[command(subcommand)]
    Clock(Clock),
    /// List what was changed, by whom and from where, and what was refused; newest first
    Audit {
        /// Only what was done in this time before now, e.g. 1h
        #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
        since: Option<Span>,
        /// Only what was done with the token of this id
        #[arg(long, value_name = "ID")]
        token: Option<String>,
        /// Only this operation, e.g. deleteQueue
        #[arg(long)]
        operation: Option<String>,
        /// How many, from 1 to 1000
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Measure: scenarios, comparisons, reports
    #[command(subcommand, after_help = EXIT_CODES)]
    Bench(BenchCommand),
    /// Examine a PostgreSQL of your own, or what is in schema egret of the running server
    Check {
        /// Its connection string [default: postgres.url, else ask the running server]
        postgres_url: Option<String>,
    },
    /// Remove everything of Egret from a database: views, outbox, schema egret; says what without --force
    Uninstall {
        /// Connection string of a database that no Egret works in [default: ask the running server]
        postgres_url: Option<String>,
        /// A database of the running server [default: the only one with something of Egret in it]
        #[arg(long, short, conflicts_with = "postgres_url")]
        database: Option<String>,
        /// Do it
        #[arg(long)]
        force: bool,
    },
    /// Show what of the data is damaged or missing and what mending it would lose; do it with --yes
    Repair {
        /// The part, such as queue/001 [default: all that need it]
        part: Option<String>,
        /// Do it; the files as they are stay beside the mended ones
        #[arg(long)]
        yes: bool,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// `egret clock …`
#[derive(Debug, Subcommand)]
pub enum Clock {
    /// Show Egret's time, the wall clock, and whether Egret's time is held
    Show,
    /// Accept the wall clock as it is: Egret's time moves there, forward or back
    Release,
}

/// `egret branch …`
#[derive(Debug, Subcommand)]
pub enum Branch {
    /// The volume that holds the source and its branches
    #[command(subcommand)]
    Volume(Volume),
    /// Branches that are ready before anybody asks for them
    #[command(subcommand)]
    Pool(Pool),
    /// The snapshots that branches are made of
    #[command(subcommand)]
    Template(Template),
    /// Make a branch
    Create(Create),
    /// List the branches
    List {
        /// Only those with this label; may be repeated
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
        labels: Vec<(String, String)>,
        /// Only those in this state
        #[arg(long)]
        state: Option<String>,
    },
    /// Show one branch with the receipt of its making
    Show {
        /// The branch
        name: String,
    },
    /// Run psql on a branch, or print its connection string
    Connect(Connect),
    /// Run one statement on a branch and print its rows
    Query(Query),
    /// Throw a branch's changes away
    Reset {
        /// The branch
        name: String,
        /// The template to go to [default: the one it was made of]
        #[arg(long, value_name = "TEMPLATE")]
        to: Option<String>,
    },
    /// Keep a branch from being destroyed, reset or expired
    Protect {
        /// The branch
        name: String,
        /// Take the protection away
        #[arg(long)]
        off: bool,
    },
    /// Stop a branch's server and keep its files
    Suspend {
        /// The branch
        name: String,
    },
    /// Start a suspended branch again
    Resume {
        /// The branch
        name: String,
    },
    /// Say when a branch is to be destroyed
    Expire(Expire),
    /// Destroy a branch
    Destroy {
        /// The branch
        name: String,
        /// Destroy the branches made of it as well
        #[arg(long)]
        children: bool,
    },
    /// Prove that a branch is apart from its source; without a name, check the registry
    Verify {
        /// The branch
        name: Option<String>,
        /// The database that the marker is written to [default: the source's]
        #[arg(long, short, requires = "name")]
        database: Option<String>,
    },
}

/// `egret branch volume …`
#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Make a copy-on-write volume and move the embedded server onto it (needs root)
    Create {
        /// How large it is; the space is taken at once, at most a third of what is free
        #[arg(long, default_value = "20GB", value_parser = value::<Size>)]
        size: Size,
    },
    /// Show the volume, what is free on it, and what branches cost there
    Show,
}

/// `egret branch pool …`
#[derive(Debug, Subcommand)]
pub enum Pool {
    /// Show how many branches are ready
    Status {
        /// Wait until every pool has what it should have
        #[arg(long)]
        filled: bool,
    },
    /// Say how many branches of a preset are to be ready; holds over a restart
    Resize {
        /// small, medium or large
        preset: String,
        /// How many, or `demand` to leave it to recent demand
        size: PoolSize,
    },
}

/// How many branches a pool is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSize {
    /// As many as recent demand asks for.
    Demand,
    /// This many.
    Branches(u32),
}

impl std::str::FromStr for PoolSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "demand" {
            return Ok(PoolSize::Demand);
        }
        let number = text.parse().map(PoolSize::Branches);
        number.map_err(|_| format!("`{text}` is neither a number of branches nor `demand`"))
    }
}

/// `egret branch template …`
#[derive(Debug, Subcommand)]
pub enum Template {
    /// Take a template of the source as it is now
    Refresh,
    /// List the templates
    List,
}

/// `egret branch create …`
#[derive(Debug, Args)]
pub struct Create {
    /// The new branch: lower-case letters, digits, `-` and `_`
    pub name: String,
    /// What to copy: `template` (the newest), `head`, `template:ID` or `branch:NAME`
    #[arg(long, default_value = "template", value_name = "ORIGIN")]
    pub from: String,
    /// Destroy it after this time, e.g. 30min, 2h or 7d
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub ttl: Option<Span>,
    /// Survive a crash of the machine: slower, as fsync is on
    #[arg(long)]
    pub durable: bool,
    /// Make its user a superuser of the branch, as some extensions need
    #[arg(long)]
    pub superuser: bool,
    /// Let roles of the application in with the passwords that they have in the source
    #[arg(long)]
    pub role_passwords: bool,
    /// How much of the machine it may use
    #[arg(long, value_parser = ["small", "medium", "large", "twin"])]
    pub preset: Option<String>,
    /// A PostgreSQL setting of the branch, e.g. work_mem=64MB; may be repeated
    #[arg(long = "setting", value_name = "NAME=VALUE", value_parser = pair)]
    pub settings: Vec<(String, String)>,
    /// A label, e.g. ticket=42; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Keep it from being destroyed, reset or expired
    #[arg(long)]
    pub protected: bool,
}

/// `egret branch connect …`
#[derive(Debug, Args)]
pub struct Connect {
    /// The branch
    pub name: String,
    /// The database [default: the only one, where there is one]
    #[arg(long, short)]
    pub database: Option<String>,
    /// Print the connection string, password included, instead of running psql
    #[arg(long)]
    pub print: bool,
    /// Arguments for psql, after `--`
    #[arg(last = true, value_name = "PSQL_ARGUMENT")]
    pub psql: Vec<String>,
}

/// `egret branch query …`
#[derive(Debug, Args)]
pub struct Query {
    /// The branch
    pub name: String,
    /// The statement
    pub sql: String,
    /// The value of $1, then of $2 …; may be repeated
    #[arg(long = "param", value_name = "VALUE", allow_hyphen_values = true)]
    pub params: Vec<String>,
    /// The database [default: the only one, where there is one]
    #[arg(long, short)]
    pub database: Option<String>,
    /// Refuse a result of more rows than this
    #[arg(long, value_name = "ROWS")]
    pub rows_max: Option<u64>,
}

/// `egret branch expire …`
#[derive(Debug, Args)]
pub struct Expire {
    /// The branch
    pub name: String,
    /// Destroy it this long from now, e.g. 30min, 2h or 7d
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>, required_unless_present = "never", conflicts_with = "never")]
    pub ttl: Option<Span>,
    /// Let it live until somebody destroys it
    #[arg(long)]
    pub never: bool,
}

/// Shown beneath the help of `egret token create`.
const TOKENS: &str = "\
For a worker or a producer: egret token create mail-worker --scope queue/mails:work --scope queue/mails:read";

/// `egret token …`
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token; it is shown this once
    #[command(after_help = TOKENS)]
    Create {
        /// What it is for, e.g. ci
        name: String,
        /// What it may do: admin, metrics:read, status:read, or branches, documents, queue, series or views with
        /// `:read`, `:write` or `:*`, of queue also `:produce`, `:work`, `:operate`; `queue/NAME:work` for one queue, and
        /// alike for branches, collections and views; may be repeated
        #[arg(long = "scope", value_name = "SCOPE", required = true)]
        scopes: Vec<String>,
        /// What is true of its holder, e.g. school=255901; may be repeated, also with the same name
        #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = pair)]
        claims: Vec<(String, String)>,
        /// The tenant it belongs to
        #[arg(long)]
        tenant: Option<String>,
        /// How long it is good for, e.g. 90d
        #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
        ttl: Option<Span>,
    },
    /// List the tokens, without their secrets
    List,
    /// Revoke a token
    Revoke {
        /// The token's id, as `egret token list` shows it
        id: String,
        /// Even the operator's last with scope `admin`
        #[arg(long)]
        force: bool,
    },
}

/// Reads `key=value`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form KEY=VALUE")),
    }
}

/// Reads a value as a setting of its type would be.
fn value<T: Value>(text: &str) -> Result<T, String> {
    T::read(text)
}

#[cfg(test)]
mod tests;
