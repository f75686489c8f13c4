//! `egret collection …` and `egret document …`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `egret collection …`
#[derive(Debug, Subcommand)]
pub enum Collection {
    /// Declare the collections of files: new ones, and other definitions of those that are there
    Apply {
        /// Files of definitions, JSON; `-` reads standard input. All of a file are declared or none
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// In which database.
        #[command(flatten)]
        place: Place,
    },
    /// List the collections
    List(Place),
    /// Show a collection as it was declared
    Show {
        /// The collection
        collection: String,
        /// In which database.
        #[command(flatten)]
        place: Place,
    },
}

/// `egret document …`
#[derive(Debug, Subcommand)]
pub enum Document {
    /// Write a document: in the place of one with the same identity, or as a new one
    Put(PutDocument),
    /// Print a document
    Get {
        /// Which document.
        #[command(flatten)]
        document: OneDocument,
        /// What of it.
        #[command(flatten)]
        shape: Shape,
        /// With its version, when it was made and changed, and by whom
        #[arg(long)]
        meta: bool,
    },
    /// Look for documents by the paths that their collection declares for that
    Query(Box<QueryDocuments>),
    /// List who refers to a document
    Referrers {
        /// Which document.
        #[command(flatten)]
        document: OneDocument,
        /// Which page.
        #[command(flatten)]
        paged: Paged,
    },
    /// Show what becomes of documents as it is committed
    Tail(TailDocuments),
    /// Change parts of a document by a patch
    Patch(PatchDocument),
    /// Put in a file of documents, a line for each: in the place of those with the same identity, or as new ones
    #[command(after_help = IMPORT)]
    Import(ImportDocuments),
    /// Print all documents of a collection as they are at one moment, a line for each
    Export {
        /// The collection
        collection: String,
        /// Each with its id, its version, when it was made and changed, and by whom
        #[arg(long)]
        meta: bool,
        /// In which database.
        #[command(flatten)]
        place: Place,
    },
    /// List what a document was, as far as its collection keeps that
    Versions {
        /// Which document.
        #[command(flatten)]
        document: OneDocument,
        /// Which page.
        #[command(flatten)]
        paged: Paged,
    },
    /// List documents that were deleted and can be restored
    Deleted {
        /// The collection
        collection: String,
        /// Which page.
        #[command(flatten)]
        paged: Paged,
        /// In which database.
        #[command(flatten)]
        place: Place,
    },
    /// Restore a document that was deleted, or what it was at a version
    Restore {
        /// Which document.
        #[command(flatten)]
        document: OneDocument,
        /// As it was at this version
        #[arg(long, value_name = "VERSION")]
        version: Option<i32>,
    },
    /// Have somebody told what becomes of documents
    #[command(subcommand)]
    Subscription(Subscription),
    /// Look whether identities, aliases, references and bodies agree
    Fsck {
        /// Write anew what follows from bodies, where it does not agree
        #[arg(long)]
        repair: bool,
        /// In which database.
        #[command(flatten)]
        place: Place,
    },
    /// Delete a document to which none refers
    Delete {
        /// Which document.
        #[command(flatten)]
        document: OneDocument,
        /// Only if it is at this version
        #[arg(long, value_name = "ETAG")]
        if_match: Option<String>,
    },
}

/// Shown beneath the help of `egret document import`.
const IMPORT: &str = "\
Lines that are refused are told at the end, and written with the reasons to --refused. Lines that come again change
nothing. What the server cannot take at the moment is sent again; when it has taken nothing for five minutes, the import
is broken off. An import of a file that was broken off goes on where it was, which FILE.progress says. It begins at the
first line, and says so, when server, database, collection or file are not the same any more, or --refused lacks lines
that were refused before; while lines wait for others that come later in the file, nothing is noted.

Lines are sent side by side: an identity stands in a file once. Where several lines have the same one, any may be the last.";

/// `egret document import …`
#[derive(Debug, Args)]
pub struct ImportDocuments {
    /// The collection
    pub collection: String,
    /// The documents, JSON, one on each line; `-` reads them from standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// Write lines that are refused to this file, each with why
    #[arg(long, value_name = "FILE")]
    pub refused: Option<PathBuf>,
    /// Write what refused lines refer to and is not there to files of this directory, DIR/COLLECTION.ndjson: documents
    /// with nothing but their identity
    #[arg(long, value_name = "DIR")]
    pub missing: Option<PathBuf>,
    /// Wait for no disk: a crash of PostgreSQL may take back the last second, and the import is begun anew
    #[arg(long)]
    pub relaxed: bool,
    /// Begin at the first line, whatever FILE.progress says
    #[arg(long)]
    pub anew: bool,
    /// In which database.
    #[command(flatten)]
    pub place: Place,
}

/// `egret document subscription …`
#[derive(Debug, Subcommand)]
pub enum Subscription {
    /// List who is told, and how far he is
    List(Place),
    /// Have somebody told, or otherwise than until now
    Set {
        /// Its name
        name: String,
        /// The address to which changes are posted
        #[arg(
            long,
            value_name = "URL",
            required_unless_present = "queue",
            conflicts_with = "queue"
        )]
        webhook: Option<String>,
        /// The queue in which each change is a task
        #[arg(long)]
        queue: Option<String>,
        /// Those of this collection alone
        #[arg(long)]
        collection: Option<String>,
        /// What comes after the change with this position [default: what changes from now on]
        #[arg(long, value_name = "POSITION")]
        after: Option<i64>,
        /// In which database.
        #[command(flatten)]
        place: Place,
    },
    /// Have somebody told no more
    Remove {
        /// Its name
        name: String,
        /// In which database.
        #[command(flatten)]
        place: Place,
    },
}

/// `egret document tail …`
#[derive(Debug, Args)]
pub struct TailDocuments {
    /// Those of this collection alone
    #[arg(long)]
    pub collection: Option<String>,
    /// Go on after the change with this position [default: what changes from now on]
    #[arg(long, value_name = "POSITION")]
    pub after: Option<i64>,
    /// End after this many changes
    #[arg(long, value_name = "CHANGES")]
    pub limit: Option<u64>,
    /// In which database.
    #[command(flatten)]
    pub place: Place,
}

/// `egret document patch …`
#[derive(Debug, Args)]
pub struct PatchDocument {
    /// Which document.
    #[command(flatten)]
    pub document: OneDocument,
    /// The patch; `-` reads it from standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// What kind of patch: RFC 7386 or RFC 6902
    #[arg(long, value_enum, default_value_t = PatchKind::Merge)]
    pub kind: PatchKind,
    /// Only if the document is at this version
    #[arg(long, value_name = "ETAG")]
    pub if_match: Option<String>,
}

/// Which page.
#[derive(Debug, Args)]
pub struct Paged {
    /// Documents of a page [default: 100]
    #[arg(long, value_name = "DOCUMENTS")]
    pub limit: Option<u32>,
    /// Go on after the page that gave this cursor
    #[arg(long)]
    pub cursor: Option<String>,
}

/// In which database.
#[derive(Debug, Args)]
pub struct Place {
    /// The database [default: the only one that has collections]
    #[arg(long, short)]
    pub database: Option<String>,
}

/// A document by its id.
#[derive(Debug, Args)]
pub struct OneDocument {
    /// Its collection
    pub collection: String,
    /// Its id
    pub id: String,
    /// In which database.
    #[command(flatten)]
    pub place: Place,
}

/// `egret document put …`
#[derive(Debug, Args)]
pub struct PutDocument {
    /// The collection
    pub collection: String,
    /// The document, JSON; `-` reads it from standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// In the place of this document, whatever its identity is
    #[arg(long)]
    pub id: Option<String>,
    /// Only if it is at this version
    #[arg(long, value_name = "ETAG", conflicts_with = "new")]
    pub if_match: Option<String>,
    /// Only if there is none
    #[arg(long, conflicts_with = "id")]
    pub new: bool,
    /// Once, however often it is asked for with this within a day
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// In which database.
    #[command(flatten)]
    pub place: Place,
}

/// `egret document query …`
#[derive(Debug, Args)]
pub struct QueryDocuments {
    /// The collection
    pub collection: String,
    /// The identity of one document, as JSON, such as '{"faa": "JFK"}'
    #[arg(long, value_name = "JSON", conflicts_with_all = ["filters", "sort", "cursor"])]
    pub identity: Option<String>,
    /// Conditions that all hold, such as '/origin = JFK' or '/delay > 60': a path, one of =, !=, <, <=, >, >=, in, prefix, exists, and a value
    #[arg(value_name = "CONDITION")]
    pub filters: Vec<String>,
    /// The path to sort by; - before it: the largest first
    #[arg(long, allow_hyphen_values = true, value_name = "PATH")]
    pub sort: Option<String>,
    /// Documents of a page [default: 100]
    #[arg(long, value_name = "DOCUMENTS")]
    pub limit: Option<u32>,
    /// Go on after the page that gave this cursor
    #[arg(long)]
    pub cursor: Option<String>,
    /// Whether all are counted: one by one, or as the planner thinks
    #[arg(long, value_enum)]
    pub count: Option<CountKind>,
    /// What of each.
    #[command(flatten)]
    pub shape: Shape,
    /// In which database.
    #[command(flatten)]
    pub place: Place,
}

/// What of a document.
#[derive(Debug, Args)]
pub struct Shape {
    /// These paths alone, with commas between them
    #[arg(long, value_name = "PATHS")]
    pub fields: Option<String>,
    /// With what these references are to, with commas between their names
    #[arg(long, value_name = "REFERENCES")]
    pub embed: Option<String>,
}

/// A kind of patch.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub enum PatchKind {
    /// An object like the document, with what is to be different
    Merge,
    /// A list of operations
    Json,
}

/// How documents are counted.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub enum CountKind {
    /// One by one
    Exact,
    /// As the planner thinks
    Planned,
}
