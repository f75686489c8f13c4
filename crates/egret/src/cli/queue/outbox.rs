//! `egret queue outbox …`

use clap::Subcommand;

/// Subcommands of `egret queue outbox …`.
#[derive(Debug, Subcommand)]
pub enum Outbox {
    /// Install `egret.enqueue` in a database, or upgrade it
    #[command(after_help = "Example: egret queue outbox install --database shop --grant app")]
    Install {
        /// Database of the outbox [default: the only one]
        #[arg(long, short)]
        database: Option<String>,
        /// Role that may enqueue, or `public` for all roles; may be repeated
        #[arg(long = "grant", value_name = "ROLE")]
        grant: Vec<String>,
    },
    /// Show the number and age of the rows in outboxes
    #[command(after_help = "Example: egret queue outbox status")]
    Status,
    /// Enqueue rejected rows again
    #[command(after_help = "Example: egret queue outbox retry --database shop")]
    Retry {
        /// Database of the outbox [default: the only one with an outbox]
        #[arg(long, short)]
        database: Option<String>,
    },
    /// Remove `egret.enqueue` and its tables from a database
    #[command(after_help = "Example: egret queue outbox remove --database shop")]
    Remove {
        /// Database of the outbox [default: the only one with an outbox]
        #[arg(long, short)]
        database: Option<String>,
        /// Remove the outbox even if it has rows, which are lost
        #[arg(long)]
        force: bool,
    },
}
