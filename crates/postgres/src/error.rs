//! What can go wrong with the PostgreSQL underneath.

use std::path::PathBuf;

use egret_base::{CodedError, Kind};
use tokio_postgres::error::SqlState;

/// What to do about a pooler in transaction mode.
pub(crate) const TRANSACTION_MODE: &str = "the connection goes through a pooler in transaction mode: \
     use its session mode (pool_mode = session) or connect to the server directly";

/// An error of the PostgreSQL underneath.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// No server program could be had.
    #[error(
        "no PostgreSQL to run: {reason}; install PostgreSQL 15 to 18 or set postgres.bin (EGRET_POSTGRES_BIN) to its bin directory"
    )]
    NoBinaries {
        /// What was tried and how it failed.
        reason: String,
    },
    /// The programs are there but cannot be used.
    #[error("the PostgreSQL programs in {directory} cannot be used: {reason}")]
    UnusableBinaries {
        /// Directory of the programs.
        directory: PathBuf,
        /// Why they cannot be used.
        reason: String,
    },
    /// A downloaded archive is not the pinned one.
    #[error(
        "the archive of PostgreSQL {version} has SHA-256 {found}, expected {expected}: it was not unpacked"
    )]
    Checksum {
        /// Version of the pinned release.
        version: String,
        /// The sum of what arrived.
        found: String,
        /// The pinned SHA-256 sum of the archive.
        expected: String,
    },
    /// The unprivileged user could not be found or created.
    #[error(
        "user {name}, which PostgreSQL is to run as: {reason}; create it or set postgres.run_as"
    )]
    Owner {
        /// Name of the user.
        name: String,
        /// What failed, or what is wrong with the user.
        reason: String,
    },
    /// The user cannot reach the data directory.
    #[error(
        "directory {directory} is not accessible to user {name}, which PostgreSQL runs as: run \
         chmod o+x on it, or set egret.data_dir to another place"
    )]
    Barrier {
        /// The directory that is closed.
        directory: PathBuf,
        /// Name of the user that PostgreSQL runs as.
        name: String,
    },
    /// A TCP port is in use by another process.
    #[error(
        "port {port} on 127.0.0.1 is in use: stop the program that listens there, or set \
         postgres.port to another port"
    )]
    PortTaken {
        /// Number of the TCP port.
        port: u16,
    },
    /// A path is too long for a unix socket.
    #[error(
        "socket directory {directory} is too long for a unix socket ({length} bytes, at most {max}): set egret.data_dir to a shorter path"
    )]
    SocketPath {
        /// Path of the socket directory.
        directory: PathBuf,
        /// Length of the socket's path, in bytes.
        length: usize,
        /// The largest possible length, in bytes.
        max: usize,
    },
    /// Something on disk could not be read or written.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was attempted, e.g. `write`.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A data directory is not in the state in which a cluster can be made in it.
    #[error("cannot create a cluster in {data}: {reason}")]
    NotEmpty {
        /// Path of the data directory.
        data: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// Every user id for servers of branches is in use.
    #[error(
        "all {count} user ids for servers of branches are in use: try again later, destroy or suspend branches, or raise branches.uid_count"
    )]
    NoUserLeft {
        /// How many there are.
        count: u32,
    },
    /// Servers of branches have as many processes as all of them together may have.
    #[error(
        "the servers of branches have nearly reached the {max} processes and threads that \
         branches.total_processes_max allows: try again later, destroy or suspend branches, or \
         raise the setting"
    )]
    NoProcessLeft {
        /// How many they may have.
        max: u32,
    },
    /// A program of PostgreSQL failed.
    #[error("{program} failed: {output}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// The last lines it wrote.
        output: String,
    },
    /// A postmaster exited before it was ready.
    #[error("postgres in {data} stopped while starting: {log}")]
    StartFailed {
        /// Data directory of the postmaster.
        data: PathBuf,
        /// The last lines of its log.
        log: String,
    },
    /// A postmaster was not ready in time.
    #[error("postgres in {data} was not ready after {waited_ms} ms: see its log {log_file}")]
    StartTimeout {
        /// Data directory of the postmaster.
        data: PathBuf,
        /// How long was waited, in milliseconds.
        waited_ms: u64,
        /// Where its log is.
        log_file: PathBuf,
    },
    /// Processes of an earlier postmaster still use the data directory.
    #[error("process {pid} still uses {data}: it must end before the server can start")]
    StillInUse {
        /// The data directory in use.
        data: PathBuf,
        /// Process id of one of them.
        pid: i32,
    },
    /// The server is not running at the moment, or not yet Egret's to work in.
    #[error("PostgreSQL is not ready: {reason}")]
    NotRunning {
        /// Why it is not ready.
        reason: String,
    },
    /// The server's version is outside 15 to 18.
    #[error("PostgreSQL {found} is not supported: Egret works with 15, 16, 17 and 18")]
    Version {
        /// The version of the server.
        found: String,
    },
    /// A server answered with an error or the connection failed.
    #[error("{doing}: {}", describe(error))]
    Server {
        /// What was attempted, for the message.
        doing: &'static str,
        /// The driver's error. The message has it with its causes, so that it is no source.
        error: tokio_postgres::Error,
    },
    /// None of several hosts opened a session.
    #[error("connect: no host accepts a session: {reasons}")]
    NoHost {
        /// Each host with its error.
        reasons: String,
        /// The driver's error that says most.
        error: tokio_postgres::Error,
    },
    /// The server opens no session in a database that is there.
    #[error("cannot open a session in database `{database}`: {}", describe(error))]
    NoSession {
        /// Name of the database.
        database: String,
        /// The driver's error, which the message describes.
        error: tokio_postgres::Error,
    },
    /// A session was not open in time.
    #[error(
        "connect: the server did not open a session within {} ms: check whether it answers, or \
         raise postgres.connect_timeout",
        timeout.as_millis()
    )]
    ConnectTimeout {
        /// How long was waited.
        timeout: std::time::Duration,
    },
    /// An answer did not come in time.
    #[error(
        "{doing}: the server did not answer within {} ms: check whether it is frozen or waits \
         for a lock",
        timeout.as_millis()
    )]
    AnswerTimeout {
        /// What was attempted, for the message.
        doing: &'static str,
        /// How long was waited.
        timeout: std::time::Duration,
    },
    /// What is to be removed was locked for too long.
    #[error(
        "remove schema egret: {holders} held a lock on it for more than {} ms, and nothing was \
         changed: wait until it ends, or end it with pg_terminate_backend",
        timeout.as_millis()
    )]
    LockTimeout {
        /// The sessions that hold locks, for people.
        holders: String,
        /// How long was waited.
        timeout: std::time::Duration,
    },
    /// A pooler lends the server connection of an idle session to others.
    #[error("{}", TRANSACTION_MODE)]
    TransactionMode,
    /// Nothing listens on a server's socket.
    #[error("connect to {path}: {source}")]
    Unreachable {
        /// Path of the server's socket.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The server's answer is not accepted.
    #[error("{doing}: the server's answer is rejected: {reason}")]
    Answer {
        /// What was attempted, for the message.
        doing: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The connection string cannot be understood.
    #[error("postgres.url is not a connection string: {reason}")]
    Url {
        /// What is wrong, without the string itself, which may hold a password.
        reason: String,
    },
    /// Another Egret manages this database.
    #[error("database {database} is managed by another Egret ({holder}): stop that one first")]
    ManagedElsewhere {
        /// Name of the database.
        database: String,
        /// The session that holds the lock.
        holder: String,
    },
    /// A migration of schema `egret` is not this binary's.
    #[error("schema egret: {0}")]
    Migration(String),
    /// Schema `egret` belongs to another role, or other roles may change it.
    #[error(
        "schema egret belongs to, or may be changed by, {roles}: its contents would run with \
         Egret's rights; drop it, or make Egret's role the owner of everything in it"
    )]
    ForeignSchema {
        /// Names of these roles, for the message.
        roles: String,
    },
    /// Views outside of schema `egret` depend on it and would be dropped with it.
    #[error(
        "removing schema egret would drop views of Egret: {dependents}; drop them first, or set \
         `force` to drop them with it"
    )]
    SchemaInUse {
        /// Names of the dependent views, for the message.
        dependents: String,
    },
    /// Objects of users are in schema `egret`, or depend on what is in it.
    #[error(
        "cannot remove Egret, because it would drop objects that are yours: {objects}; move or \
         drop them first"
    )]
    UserObjects {
        /// Their descriptions, with the commands that move them.
        objects: String,
    },
    /// The database does not exist.
    #[error("{reason}")]
    DatabaseNotFound {
        /// Name of the database, and the names of the existing ones.
        reason: String,
    },
    /// All sessions that requests may use are in use.
    #[error(transparent)]
    SessionsTaken(#[from] crate::slots::SlotsTaken),
    /// No connection became free in time.
    #[error("no connection to PostgreSQL is free: {reason}")]
    Pool {
        /// Message of the connection pool.
        reason: String,
    },
}

impl PostgresError {
    /// This error for a session in a database: it names the database if the server refuses sessions
    /// there, because it accepts no connections or a library to be loaded is missing.
    #[must_use]
    pub fn in_database(self, database: &str) -> Self {
        let refusals = [SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, SqlState::UNDEFINED_FILE];
        match self {
            Self::Server { error, .. } | Self::NoHost { error, .. }
                if error.code().is_some_and(|code| refusals.contains(code)) =>
            {
                Self::NoSession { database: database.to_owned(), error }
            }
            other => other,
        }
    }
}

impl CodedError for PostgresError {
    fn code(&self) -> &'static str {
        match self {
            PostgresError::NoBinaries { .. } => "postgres_not_found",
            PostgresError::UnusableBinaries { .. } => "postgres_unusable",
            PostgresError::Checksum { .. } => "postgres_checksum",
            PostgresError::Owner { .. } | PostgresError::Barrier { .. } => "postgres_user",
            PostgresError::PortTaken { .. } => "port_taken",
            PostgresError::SocketPath { .. } => "socket_path_too_long",
            PostgresError::Io { .. } => "postgres_files",
            PostgresError::NotEmpty { .. } => "postgres_data_directory",
            PostgresError::NoUserLeft { .. } | PostgresError::NoProcessLeft { .. } => {
                "branch_servers_full"
            }
            PostgresError::Program { .. } => "postgres_program",
            PostgresError::StartFailed { .. } => "postgres_start_failed",
            PostgresError::StartTimeout { .. } => "postgres_start_timeout",
            PostgresError::StillInUse { .. } => "postgres_still_in_use",
            PostgresError::NotRunning { .. } => "postgres_not_running",
            PostgresError::Version { .. } => "postgres_version",
            PostgresError::Server { error, .. } | PostgresError::NoHost { error, .. }
                if is_unknown_database(error) =>
            {
                "database_not_found"
            }
            PostgresError::Server { .. }
            | PostgresError::NoHost { .. }
            | PostgresError::Unreachable { .. }
            | PostgresError::Answer { .. } => "postgres_error",
            PostgresError::NoSession { .. } => "postgres_database_unreachable",
            PostgresError::ConnectTimeout { .. } => "postgres_connect_timeout",
            PostgresError::AnswerTimeout { .. } => "postgres_answer_timeout",
            PostgresError::LockTimeout { .. } => "postgres_lock_timeout",
            PostgresError::TransactionMode => "postgres_transaction_mode",
            PostgresError::Url { .. } => "postgres_url",
            PostgresError::ManagedElsewhere { .. } => "managed_elsewhere",
            PostgresError::Migration(_) => "postgres_migration",
            PostgresError::SchemaInUse { .. } => "postgres_schema_in_use",
            PostgresError::ForeignSchema { .. } => "postgres_foreign_schema",
            PostgresError::UserObjects { .. } => "postgres_user_objects",
            PostgresError::DatabaseNotFound { .. } => "database_not_found",
            PostgresError::SessionsTaken(taken) if !taken.is_of_all() => "limit_exceeded",
            PostgresError::Pool { .. } | PostgresError::SessionsTaken(_) => "postgres_pool",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            PostgresError::NotRunning { .. }
            | PostgresError::Pool { .. }
            | PostgresError::ConnectTimeout { .. }
            | PostgresError::AnswerTimeout { .. }
            | PostgresError::LockTimeout { .. }
            | PostgresError::NoSession { .. }
            | PostgresError::Unreachable { .. } => Kind::Unavailable,
            // Servers of other tenants may hold what is missing: the caller can only retry.
            PostgresError::NoUserLeft { .. } | PostgresError::NoProcessLeft { .. } => {
                Kind::Unavailable
            }
            PostgresError::Answer { .. } => Kind::Conflict,
            PostgresError::SessionsTaken(taken) => taken.kind(),
            PostgresError::StartTimeout { .. } => Kind::TimedOut,
            PostgresError::Server { error, .. } | PostgresError::NoHost { error, .. }
                if crate::retry::is_transient(error) =>
            {
                Kind::Unavailable
            }
            PostgresError::Server { error, .. } | PostgresError::NoHost { error, .. }
                if is_unknown_database(error) =>
            {
                Kind::NotFound
            }
            PostgresError::Url { .. } | PostgresError::Version { .. } => Kind::Invalid,
            PostgresError::ManagedElsewhere { .. }
            | PostgresError::TransactionMode
            | PostgresError::SchemaInUse { .. }
            | PostgresError::UserObjects { .. } => Kind::Conflict,
            PostgresError::DatabaseNotFound { .. } => Kind::NotFound,
            _ => Kind::Internal,
        }
    }
}

/// Whether the server has no such database.
pub(crate) fn is_unknown_database(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::UNDEFINED_DATABASE)
}

/// The server's own message with its SQLSTATE, or the driver's with its cause.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(answer) => format!("{} (SQLSTATE {})", answer.message(), answer.code().code()),
        None => crate::tls_error::describe_driver_error(error)
            .unwrap_or_else(|| egret_base::error::chain(error)),
    }
}

/// Wraps an operating-system error with what was attempted on which path.
pub(crate) fn io_error(
    doing: &'static str,
    path: &std::path::Path,
) -> impl FnOnce(std::io::Error) -> PostgresError {
    let path = path.to_owned();
    move |source| PostgresError::Io { doing, path, source }
}

/// Wraps a driver error with what was attempted.
pub fn server_error(doing: &'static str) -> impl FnOnce(tokio_postgres::Error) -> PostgresError {
    move |error| PostgresError::Server { doing, error }
}
