//! `egret branch …`

use clap::{Args, Subcommand};
use egret_base::settings::{ByteSize, ConfigDuration};

use super::value_parsers::{pair, value};

/// Subcommands of `egret branch …`.
#[derive(Debug, Subcommand)]
pub enum BranchCommand {
    /// Manage the volume that holds the source and its branches
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Manage pools of branches that are created in advance
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Manage templates, the snapshots that branches are cloned from
    #[command(subcommand)]
    Template(TemplateCommand),
    /// Create a branch
    #[command(after_help = "Example: egret branch create review --ttl 2h --label ticket=42")]
    Create(CreateBranch),
    /// List branches
    #[command(after_help = "Example: egret branch list --label ticket=42")]
    List {
        /// Only branches with this label; may be repeated
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
        labels: Vec<(String, String)>,
        /// Only branches in this state, e.g. running
        #[arg(long)]
        state: Option<String>,
    },
    /// Show a branch and the receipt of its creation
    #[command(after_help = "Example: egret branch show review")]
    Show {
        /// Name of the branch
        name: String,
    },
    /// Run psql on a branch, or print its connection string
    #[command(
        after_help = "Example: egret branch connect review -- -c 'SELECT count(*) FROM flights'"
    )]
    Connect(Connect),
    /// Run one SQL statement on a branch and print its rows
    #[command(
        after_help = "Example: egret branch query review 'SELECT * FROM planes WHERE year < $1' --param 1960"
    )]
    Query(BranchQuery),
    /// Discard the changes of a branch
    #[command(after_help = "Example: egret branch reset review")]
    Reset {
        /// Name of the branch
        name: String,
        /// Id of the template to reset to [default: the template that the branch was cloned from]
        #[arg(long, value_name = "TEMPLATE")]
        to: Option<String>,
    },
    /// Protect a branch from destruction, reset and expiry
    #[command(after_help = "Example: egret branch protect review")]
    Protect {
        /// Name of the branch
        name: String,
        /// Remove the protection of the branch
        #[arg(long)]
        off: bool,
    },
    /// Stop the server of a branch and keep its files
    #[command(after_help = "Example: egret branch suspend review")]
    Suspend {
        /// Name of the branch
        name: String,
    },
    /// Start the server of a suspended branch
    #[command(after_help = "Example: egret branch resume review")]
    Resume {
        /// Name of the branch
        name: String,
    },
    /// Set or remove the expiry of a branch
    #[command(after_help = "Example: egret branch expire review --ttl 7d")]
    Expire(Expire),
    /// Destroy a branch
    #[command(after_help = "Example: egret branch destroy review")]
    Destroy {
        /// Name of the branch
        name: String,
        /// Also destroy the branches that were created from it
        #[arg(long)]
        children: bool,
    },
    /// Verify that a branch is isolated from its source, or check the registry of branches
    #[command(after_help = "Example: egret branch verify review")]
    Verify {
        /// Name of the branch [default: compare the registry with files and processes]
        name: Option<String>,
        /// Database that the marker is written to [default: the source's]
        #[arg(long, short, requires = "name")]
        database: Option<String>,
    },
}

/// Subcommands of `egret branch volume …`.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create a copy-on-write volume and move the embedded server onto it (needs root)
    #[command(after_help = "Example: egret branch volume create --size 50GB")]
    Create {
        /// Size of the volume, allocated at once: at most a third of the free space
        #[arg(long, default_value = "20GB", value_parser = value::<ByteSize>)]
        size: ByteSize,
    },
    /// Show the volume, its free space, and the space that branches take
    #[command(after_help = "Example: egret branch volume show")]
    Show,
}

/// Subcommands of `egret branch pool …`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Show the target and the number of ready branches of each pool
    #[command(after_help = "Example: egret branch pool status --filled")]
    Status {
        /// Wait until every pool has reached its target
        #[arg(long)]
        filled: bool,
    },
    /// Set the target of a pool; it holds across restarts
    #[command(after_help = "Example: egret branch pool resize small 10")]
    Resize {
        /// Preset of the branches: small, medium or large
        preset: String,
        /// Number of branches, or `demand` to follow recent demand
        size: PoolSize,
    },
}

/// How many branches a pool is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSize {
    /// As many as recent demand asks for.
    Demand,
    /// This number of branches.
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

/// Subcommands of `egret branch template …`.
#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// Take a new template of the source
    #[command(after_help = "Example: egret branch template refresh")]
    Refresh,
    /// List templates
    #[command(after_help = "Example: egret branch template list")]
    List,
}

/// Arguments of `egret branch create …`.
#[derive(Debug, Args)]
pub struct CreateBranch {
    /// Name of the branch: lower-case letters, digits, `-` and `_`
    pub name: String,
    /// Origin of the clone: `template` (the newest), `head`, `template:ID` or `branch:NAME`
    #[arg(long, default_value = "template", value_name = "ORIGIN")]
    pub from: String,
    /// Time until the branch expires, e.g. 30min, 2h or 7d [default: branches.ttl_default]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub ttl: Option<ConfigDuration>,
    /// Keep fsync on: slower, but committed data survives a crash of the machine
    #[arg(long)]
    pub durable: bool,
    /// Make the user of the branch a superuser, as some extensions require
    #[arg(long)]
    pub superuser: bool,
    /// Let roles of the application log in with their passwords of the source
    #[arg(long)]
    pub role_passwords: bool,
    /// Resources of the branch's server [default: small]
    #[arg(long, value_parser = ["small", "medium", "large", "twin"])]
    pub preset: Option<String>,
    /// PostgreSQL setting of the branch, e.g. work_mem=64MB; may be repeated
    #[arg(long = "setting", value_name = "NAME=VALUE", value_parser = pair)]
    pub settings: Vec<(String, String)>,
    /// Label of the branch, e.g. ticket=42; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Protect the branch from destruction, reset and expiry
    #[arg(long)]
    pub protected: bool,
}

/// Arguments of `egret branch connect …`.
#[derive(Debug, Args)]
pub struct Connect {
    /// Name of the branch
    pub name: String,
    /// Database to connect to [default: the only one]
    #[arg(long, short)]
    pub database: Option<String>,
    /// Print the connection string, password included, instead of running psql
    #[arg(long)]
    pub print: bool,
    /// Arguments for psql, after `--`
    #[arg(last = true, value_name = "PSQL_ARGUMENT")]
    pub psql: Vec<String>,
}

/// Arguments of `egret branch query …`.
#[derive(Debug, Args)]
pub struct BranchQuery {
    /// Name of the branch
    pub name: String,
    /// SQL statement to execute
    pub sql: String,
    /// Value of the next parameter of the statement, $1 first; may be repeated
    #[arg(long = "param", value_name = "VALUE", allow_hyphen_values = true)]
    pub params: Vec<String>,
    /// Database to connect to [default: the only one]
    #[arg(long, short)]
    pub database: Option<String>,
    /// Maximum number of rows; fail if the result has more [default: branches.query_rows_max]
    #[arg(long, value_name = "ROWS")]
    pub rows_max: Option<u64>,
}

/// Arguments of `egret branch expire …`.
#[derive(Debug, Args)]
pub struct Expire {
    /// Name of the branch
    pub name: String,
    /// Time from now until the branch expires, e.g. 30min, 2h or 7d
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>, required_unless_present = "never", conflicts_with = "never")]
    pub ttl: Option<ConfigDuration>,
    /// Remove the expiry of the branch
    #[arg(long)]
    pub never: bool,
}
