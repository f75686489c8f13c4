//! The PostgreSQL frontend protocol, version 3.0, over a Unix socket.
//!
//! It is Egret's own because the proxy hands raw sessions to its clients, which no driver allows:
//! [`Session::into_raw`] gives back the socket together with everything that was read from it. The
//! same sessions execute queries of the HTTP frontend while no client has leased them.
//!
//! The other half serves the proxy's clients: [`FirstPacket`] decodes what a client sends before it
//! is authenticated, and [`scram`] is the server's side of the password exchange. Both are pure.
//!
//! Message formats: PostgreSQL documentation, chapter "Frontend/Backend Protocol". Nothing here
//! waits with a time limit; the caller sets one.

mod connection;
mod error;
mod packet;
mod query;
pub mod scram;
mod session;

pub(crate) use connection::{connect_socket, socket_name};
pub use error::{ServerError, WireError};
pub use packet::{FirstPacket, PacketError, SaslInitialResponse, StartupPacket};
pub use session::{BackendKey, RawSession, Session, cancel};

/// The role, the database and the settings of a new session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Startup {
    /// Name of the role.
    pub user: String,
    /// Name of the database.
    pub database: String,
    /// Settings by name, such as `application_name`; they become the session's defaults, so `RESET`
    /// and `DISCARD ALL` come back to them. Sessions that are to be [queried](Session::query) need
    /// `client_encoding` to be `UTF8` unless the server's default is.
    pub parameters: Vec<(String, String)>,
}

/// A column of an [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name, `?column?` when the statement gives none.
    pub name: String,
    /// The type's row in `pg_type`.
    pub type_oid: u32,
}

/// Result of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The columns; empty for statements that return no rows.
    pub columns: Vec<Column>,
    /// The rows, each as long as `columns`: values in text form, `None` for NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// The command tag, such as `SELECT 3` or `CREATE TABLE`; empty for an empty statement.
    pub command_tag: String,
}
