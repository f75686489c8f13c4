//! `egret queue outbox …`

use clap::Subcommand;

/// `egret queue outbox …`
#[derive(Debug, Subcommand)]
pub enum Outbox {
    /// Make `egret.enqueue` in a database, or bring it up to date
    Install {
        /// The database [default: the only one, where there is one]
        #[arg(long, short)]
        database: Option<String>,
        /// A role that may enqueue, `public` for all of them; may be repeated
        #[arg(long = "grant", value_name = "ROLE")]
        grant: Vec<String>,
    },
    /// Show what waits in the outboxes, and for how long
    Status,
    /// Hand rejected rows over again
    Retry {
        /// The database [default: the only one with an outbox]
        #[arg(long, short)]
        database: Option<String>,
    },
    /// Remove `egret.enqueue` and its tables from a database
    Remove {
        /// The database [default: the only one with an outbox]
        #[arg(long, short)]
        database: Option<String>,
        /// Even with rows in it
        #[arg(long)]
        force: bool,
    },
}
