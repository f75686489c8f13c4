//! What can go wrong between Egret and a PostgreSQL server on a socket.

use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use egret_base::{CodedError, Kind, LimitExceeded};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;

/// An error reported by the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerError {
    /// `ERROR`, `FATAL` or `PANIC`, never translated.
    pub severity: String,
    /// The five characters of the SQLSTATE code.
    pub sqlstate: String,
    /// The primary message of the error.
    pub message: String,
    /// More about the problem.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Position of the error in the statement, in characters from 1.
    pub position: Option<u32>,
    /// The message as it came, header included, so that the proxy can relay every field of it.
    pub raw: Bytes,
}

impl ServerError {
    pub(super) fn parse(mut fields: ErrorFields<'_>, raw: Bytes) -> io::Result<Self> {
        let mut error = ServerError { raw, ..Self::default() };
        while let Some(field) = fields.next()? {
            let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'V' => error.severity = value(),
                b'C' => error.sqlstate = value(),
                b'M' => error.message = value(),
                b'D' => error.detail = Some(value()),
                b'H' => error.hint = Some(value()),
                b'P' => error.position = value().parse().ok(),
                _ => {}
            }
        }
        Ok(error)
    }

    /// Whether the server ends the session with it.
    pub fn ends_session(&self) -> bool {
        matches!(self.severity.as_str(), "FATAL" | "PANIC")
    }

    /// Whether it is the warning with which a server ends every session at once: because one of its
    /// processes crashed, or for an immediate shutdown.
    pub(super) fn is_shutdown_warning(&self) -> bool {
        self.severity == "WARNING" && ["57P01", "57P02"].contains(&self.sqlstate.as_str())
    }

    fn kind(&self) -> Kind {
        match self.sqlstate.as_str() {
            "42501" => Kind::Denied,
            // A wrong number of parameters, for example: it stays wrong.
            "08P01" => Kind::Invalid,
            "3D000" => Kind::NotFound,
            "57014" => Kind::TimedOut,
            "40001" | "40P01" | "55P03" => Kind::Conflict,
            state => match state.get(..2) {
                Some("28") => Kind::Unauthenticated,
                Some("23" | "25" | "55") => Kind::Conflict,
                Some("08" | "53" | "57") => Kind::Unavailable,
                Some("58" | "F0" | "XX") | None => Kind::Internal,
                Some(_) => Kind::Invalid,
            },
        }
    }
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (SQLSTATE {}", self.message, self.sqlstate)?;
        if let Some(position) = self.position {
            write!(f, ", at character {position}")?;
        }
        write!(f, ")")?;
        for more in [&self.detail, &self.hint].into_iter().flatten() {
            write!(f, "; {more}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ServerError {}

/// Why a session could not be opened or a statement not be answered.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// No process listens on the socket.
    #[error("cannot connect to postgresql at {}: is the server running?", path.display())]
    Unreachable {
        /// Path of the socket.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The connection ended or failed under a running session.
    #[error("the connection to postgresql was lost")]
    Lost(#[source] io::Error),
    /// The server asked for something other than peer authentication.
    #[error(
        "postgresql asks for {method} authentication on its socket, but egret supports only \
         peer: check pg_hba.conf and pg_ident.conf of this server"
    )]
    Authentication {
        /// The authentication method that it asked for.
        method: &'static str,
    },
    /// The server refused, with its reason.
    #[error(transparent)]
    Server(Box<ServerError>),
    /// The answer is larger than the caller allows.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The statement is a COPY from or to the client.
    #[error(
        "COPY from or to the client is not possible here: connect through the proxy, \
         for instance with psql's \\copy"
    )]
    CopyRefused,
    /// A statement or parameter that the protocol cannot carry.
    #[error("the statement cannot be sent: {0}")]
    Unsendable(&'static str),
    /// A value that is not text in UTF-8.
    #[error(
        "column {column} holds text that is not UTF-8: read it through a driver, \
         or convert it in the statement"
    )]
    NotUtf8 {
        /// Name of the column.
        column: String,
    },
    /// The server sent what the protocol does not allow.
    #[error("postgresql violated its protocol: {0}")]
    Protocol(String),
    /// An earlier call on this session did not finish.
    #[error("the session was left in the middle of a statement: open another one")]
    Broken,
}

impl WireError {
    /// The server's error, if the server refused.
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            WireError::Server(error) => Some(error),
            _ => None,
        }
    }
}

impl CodedError for WireError {
    fn code(&self) -> &'static str {
        match self {
            WireError::Unreachable { .. } => "postgres_unreachable",
            WireError::Lost(_) => "postgres_connection_lost",
            WireError::Authentication { .. } => "postgres_authentication_unsupported",
            WireError::Server(_) => "sql_error",
            WireError::Limit(limit) => limit.code(),
            WireError::CopyRefused => "copy_refused",
            WireError::Unsendable(_) => "statement_unsendable",
            WireError::NotUtf8 { .. } => "value_not_utf8",
            WireError::Protocol(_) => "postgres_protocol_violation",
            WireError::Broken => "postgres_session_broken",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            WireError::Unreachable { .. } | WireError::Lost(_) | WireError::Broken => {
                Kind::Unavailable
            }
            WireError::Authentication { .. } | WireError::Protocol(_) => Kind::Internal,
            WireError::Server(error) => error.kind(),
            // Another request for the same rows cannot help, so this is not retryable.
            WireError::Limit(_) | WireError::CopyRefused | WireError::Unsendable(_) => {
                Kind::Invalid
            }
            WireError::NotUtf8 { .. } => Kind::Invalid,
        }
    }

    fn retryable(&self) -> bool {
        match self {
            // A statement that was cancelled by its timeout will be cancelled again.
            WireError::Server(error) => {
                error.kind() == Kind::Unavailable
                    || matches!(error.sqlstate.as_str(), "40001" | "40P01" | "55P03")
            }
            _ => self.kind() == Kind::Unavailable,
        }
    }
}
