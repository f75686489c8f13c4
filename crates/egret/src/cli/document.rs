//! `egret collection …` and `egret document …`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Subcommands of `egret collection …`.
#[derive(Debug, Subcommand)]
pub enum Collection {
    /// Create or change the collections that files define
    #[command(after_help = "Example: egret collection apply collections.json")]
    Apply {
        /// JSON files of definitions, each applied completely or not at all; `-` for standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Selects the database to work in.
        #[command(flatten)]
        place: DatabaseArgs,
    },
    /// List collections
    #[command(after_help = "Example: egret collection list --database flights")]
    List(DatabaseArgs),
    /// Show the definition of a collection
    #[command(after_help = "Example: egret collection show airports")]
    Show {
        /// Name of the collection
        collection: String,
        /// Selects the database to work in.
        #[command(flatten)]
        place: DatabaseArgs,
    },
}

/// Subcommands of `egret document …`.
#[derive(Debug, Subcommand)]
pub enum Document {
    /// Write a document: replace the one with the same identity, or create it
    #[command(after_help = "Example: egret document put airports airport.json")]
    Put(PutDocument),
    /// Print a document
    #[command(
        after_help = "Example: egret document get airports 01a20a5d-689b-7000-9b44-5dd4a23a2605 --meta"
    )]
    Get {
        /// Selects the document by its id.
        #[command(flatten)]
        document: DocumentArgs,
        /// Selects what is returned of the document.
        #[command(flatten)]
        shape: ProjectionArgs,
        /// Also print the version, and the times and tokens of its creation and last change
        #[arg(long)]
        meta: bool,
    },
    /// Query documents by the paths that their collection declares for queries
    #[command(
        after_help = "Example: egret document query flights '/origin = JFK' '/dep_delay > 60' --sort -/dep_delay"
    )]
    Query(Box<QueryDocuments>),
    /// List the documents that refer to a document
    #[command(
        after_help = "Example: egret document referrers airports 01a20a5d-689b-7000-9b44-5dd4a23a2605"
    )]
    Referrers {
        /// Selects the document by its id.
        #[command(flatten)]
        document: DocumentArgs,
        /// Selects a page of the results.
        #[command(flatten)]
        paged: PageArgs,
    },
    /// Follow the change feed of documents
    #[command(after_help = "Example: egret document tail --collection flights --limit 10")]
    Tail(TailDocuments),
    /// Change parts of a document by a patch
    #[command(
        after_help = "Example: egret document patch airports 01a20a5d-689b-7000-9b44-5dd4a23a2605 patch.json"
    )]
    Patch(PatchDocument),
    /// Import a file with one document a line: replace those with the same identity, or create them
    #[command(after_help = format!(
        "{IMPORT}\n\nExample: egret document import flights flights.ndjson --refused refused.ndjson"
    ))]
    Import(ImportDocuments),
    /// Export all documents of a collection from one snapshot, one a line
    #[command(after_help = "Example: egret document export airports --meta")]
    Export {
        /// Name of the collection
        collection: String,
        /// Also print the id, the version, and the times and tokens of creation and last change
        #[arg(long)]
        meta: bool,
        /// Selects the database to work in.
        #[command(flatten)]
        place: DatabaseArgs,
    },
    /// List the versions of a document that the history of its collection keeps
    #[command(
        after_help = "Example: egret document versions airports 01a20a5d-689b-7000-9b44-5dd4a23a2605"
    )]
    Versions {
        /// Selects the document by its id.
        #[command(flatten)]
        document: DocumentArgs,
        /// Selects a page of the results.
        #[command(flatten)]
        paged: PageArgs,
    },
    /// List deleted documents that can be restored
    #[command(after_help = "Example: egret document deleted airports")]
    Deleted {
        /// Name of the collection
        collection: String,
        /// Selects a page of the results.
        #[command(flatten)]
        paged: PageArgs,
        /// Selects the database to work in.
        #[command(flatten)]
        place: DatabaseArgs,
    },
    /// Restore a deleted document, or an earlier version of a document
    #[command(
        after_help = "Example: egret document restore airports 01a20a5d-689b-7000-9b44-5dd4a23a2605 --version 2"
    )]
    Restore {
        /// Selects the document by its id.
        #[command(flatten)]
        document: DocumentArgs,
        /// Version to restore [default: the last one of the deleted document]
        #[arg(long, value_name = "VERSION")]
        version: Option<i32>,
    },
    /// Manage subscriptions to document changes
    #[command(subcommand)]
    Subscription(SubscriptionCommand),
    /// Check that identities, aliases and references agree with bodies
    #[command(after_help = "Example: egret document fsck --repair")]
    Fsck {
        /// Rewrite identities, aliases and references that do not agree with bodies
        #[arg(long)]
        repair: bool,
        /// Selects the database to work in.
        #[command(flatten)]
        place: DatabaseArgs,
    },
    /// Delete a document to which no other document refers
    #[command(
        after_help = "Example: egret document delete airports 01a20a5d-689b-7000-9b44-5dd4a23a2605"
    )]
    Delete {
        /// Selects the document by its id.
        #[command(flatten)]
        document: DocumentArgs,
        /// Fail unless this is the ETag of the document
        #[arg(long, value_name = "ETAG")]
        if_match: Option<String>,
    },
}

/// Printed at the end of the help of `egret document import`.
const IMPORT: &str = "\
Refused lines are counted at the end, and written with their reasons to --refused. A repeated line changes nothing. \
Lines that the server cannot accept at the moment are retried; the import stops after five minutes without progress. \
FILE.progress records the position, from which a stopped import continues. The import starts at the first line, and \
says so, if the server, database, collection or file has changed, or if --refused lacks lines that were refused \
before. The position is not recorded while lines wait for later lines of the file.

Lines are sent in parallel. If several lines have the same identity, any of them may be written last.";

/// Arguments of `egret document import …`.
#[derive(Debug, Args)]
pub struct ImportDocuments {
    /// Name of the collection
    pub collection: String,
    /// File with one JSON document a line; `-` for standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// File to write refused lines to, each with the reason
    #[arg(long, value_name = "FILE")]
    pub refused: Option<PathBuf>,
    /// Directory to write missing targets of references to: files COLLECTION.ndjson of documents
    /// that have only their identity
    #[arg(long, value_name = "DIR")]
    pub missing: Option<PathBuf>,
    /// Commit without waiting for the disk: a crash of PostgreSQL may lose the last second, and the
    /// import starts again at the first line
    #[arg(long)]
    pub relaxed: bool,
    /// Start at the first line and ignore FILE.progress
    #[arg(long)]
    pub anew: bool,
    /// Selects the database to work in.
    #[command(flatten)]
    pub place: DatabaseArgs,
}

/// Subcommands of `egret document subscription …`.
#[derive(Debug, Subcommand)]
pub enum SubscriptionCommand {
    /// List subscriptions and their positions
    #[command(after_help = "Example: egret document subscription list")]
    List(DatabaseArgs),
    /// Create or replace a subscription
    #[command(
        after_help = "Example: egret document subscription set search --queue changes --collection flights"
    )]
    Set {
        /// Name of the subscription
        name: String,
        /// URL that receives changes by POST requests
        #[arg(
            long,
            value_name = "URL",
            required_unless_present = "queue",
            conflicts_with = "queue"
        )]
        webhook: Option<String>,
        /// Queue that receives a task for each change
        #[arg(long)]
        queue: Option<String>,
        /// Only changes of this collection [default: all collections]
        #[arg(long)]
        collection: Option<String>,
        /// Position in the change feed to start after [default: its end]
        #[arg(long, value_name = "POSITION")]
        after: Option<i64>,
        /// Selects the database to work in.
        #[command(flatten)]
        place: DatabaseArgs,
    },
    /// Remove a subscription
    #[command(after_help = "Example: egret document subscription remove search")]
    Remove {
        /// Name of the subscription
        name: String,
        /// Selects the database to work in.
        #[command(flatten)]
        place: DatabaseArgs,
    },
}

/// Arguments of `egret document tail …`.
#[derive(Debug, Args)]
pub struct TailDocuments {
    /// Only changes of this collection [default: all collections]
    #[arg(long)]
    pub collection: Option<String>,
    /// Position in the change feed to start after [default: its end]
    #[arg(long, value_name = "POSITION")]
    pub after: Option<i64>,
    /// Number of changes after which to exit [default: no limit]
    #[arg(long, value_name = "CHANGES")]
    pub limit: Option<u64>,
    /// Selects the database to work in.
    #[command(flatten)]
    pub place: DatabaseArgs,
}

/// Arguments of `egret document patch …`.
#[derive(Debug, Args)]
pub struct PatchDocument {
    /// Selects the document by its id.
    #[command(flatten)]
    pub document: DocumentArgs,
    /// File with the patch; `-` for standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// Kind of patch: merge (RFC 7386) or json (RFC 6902)
    #[arg(long, value_enum, default_value_t = PatchKind::Merge)]
    pub kind: PatchKind,
    /// Fail unless this is the ETag of the document
    #[arg(long, value_name = "ETAG")]
    pub if_match: Option<String>,
}

/// Selects a page of the results.
#[derive(Debug, Args)]
pub struct PageArgs {
    /// Maximum number of documents in a page [default: 100]
    #[arg(long, value_name = "DOCUMENTS")]
    pub limit: Option<u32>,
    /// Cursor that the previous page ended with
    #[arg(long)]
    pub cursor: Option<String>,
}

/// Selects the database to work in.
#[derive(Debug, Args)]
pub struct DatabaseArgs {
    /// Database of the collection [default: the only one that has collections]
    #[arg(long, short)]
    pub database: Option<String>,
}

/// A document by its id.
#[derive(Debug, Args)]
pub struct DocumentArgs {
    /// Collection of the document
    pub collection: String,
    /// Id of the document
    pub id: String,
    /// Selects the database to work in.
    #[command(flatten)]
    pub place: DatabaseArgs,
}

/// Arguments of `egret document put …`.
#[derive(Debug, Args)]
pub struct PutDocument {
    /// Name of the collection
    pub collection: String,
    /// File with the document as JSON; `-` for standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// Id of the document to replace, whatever the identity in the new body
    #[arg(long)]
    pub id: Option<String>,
    /// Fail unless this is the ETag of the document
    #[arg(long, value_name = "ETAG", conflicts_with = "new")]
    pub if_match: Option<String>,
    /// Fail if a document with the same identity exists
    #[arg(long, conflicts_with = "id")]
    pub new: bool,
    /// Idempotency key: the server executes requests with the same key once within a day
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Selects the database to work in.
    #[command(flatten)]
    pub place: DatabaseArgs,
}

/// Arguments of `egret document query …`.
#[derive(Debug, Args)]
pub struct QueryDocuments {
    /// Name of the collection
    pub collection: String,
    /// Identity of one document as JSON, such as '{"faa": "JFK"}'
    #[arg(long, value_name = "JSON", conflicts_with_all = ["filters", "sort", "cursor"])]
    pub identity: Option<String>,
    /// Conditions that must all hold, such as '/origin = JFK': a path, an operator (=, !=, <, <=,
    /// >, >=, in, prefix, exists), and a value
    #[arg(value_name = "CONDITION")]
    pub filters: Vec<String>,
    /// Path to sort by, ascending; descending with - before it
    #[arg(long, allow_hyphen_values = true, value_name = "PATH")]
    pub sort: Option<String>,
    /// Maximum number of documents in a page [default: 100]
    #[arg(long, value_name = "DOCUMENTS")]
    pub limit: Option<u32>,
    /// Cursor that the previous page ended with
    #[arg(long)]
    pub cursor: Option<String>,
    /// Count all matching documents: exactly, or as estimated by the planner
    #[arg(long, value_enum)]
    pub count: Option<CountKind>,
    /// Selects what is returned of each document.
    #[command(flatten)]
    pub shape: ProjectionArgs,
    /// Selects the database to work in.
    #[command(flatten)]
    pub place: DatabaseArgs,
}

/// Options that select what is returned of a document.
#[derive(Debug, Args)]
pub struct ProjectionArgs {
    /// Paths to return, separated by commas [default: the whole document]
    #[arg(long, value_name = "PATHS")]
    pub fields: Option<String>,
    /// References whose targets to embed, separated by commas
    #[arg(long, value_name = "REFERENCES")]
    pub embed: Option<String>,
}

/// A kind of patch.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub enum PatchKind {
    /// Object with the members to change; null removes a member
    Merge,
    /// List of operations on paths
    Json,
}

/// How documents are counted.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub enum CountKind {
    /// Exact number of documents
    Exact,
    /// Estimate of the planner
    Planned,
}
