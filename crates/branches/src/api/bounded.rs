//! Bounds on what Egret asks, as superuser, of a server whose catalogue belongs to a branch's user.
//!
//! Such a server may never answer, or with more than fits into memory. Each exchange with one has a
//! deadline (`branches.server_timeout`), takes so many bytes (`branches.server_answer_max`), and
//! ends when Egret stops.

use std::path::Path;
use std::sync::Arc;

use egret_base::condition;
use egret_postgres::PostgresError;
use egret_postgres::bounded::{self, ReceiveLimit};
use egret_postgres::superuser::socket_connection;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

use crate::engine::Inner;
use crate::error::BranchesError;
use crate::store::files::SOCKET_PORT;

impl Inner {
    /// The limit on the bytes that the sessions of one exchange receive.
    pub(crate) fn receive_limit(&self) -> Arc<ReceiveLimit> {
        ReceiveLimit::new(self.config.server_answer_max.bytes())
    }

    /// Awaits an exchange with a server whose sessions have `limit`. `subject` names the server.
    ///
    /// # Errors
    /// [`BranchesError::ServerTimeout`], [`BranchesError::ServerAnswer`],
    /// [`BranchesError::Stopping`], else those of the exchange.
    pub(crate) async fn within_bounds<T>(
        &self,
        subject: &str,
        limit: &ReceiveLimit,
        exchange: impl Future<Output = Result<T, BranchesError>>,
    ) -> Result<T, BranchesError> {
        let timeout = self.config.server_timeout;
        let timed_out =
            || BranchesError::ServerTimeout { subject: subject.to_owned(), timeout_ms: timeout.0 };
        let outcome = tokio::select! {
            ended = tokio::time::timeout(timeout.duration(), exchange) => ended,
            () = self.await_stop() => return Err(BranchesError::Stopping),
        };
        let error = match outcome {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(_)) if limit.is_exceeded() => BranchesError::ServerAnswer {
                subject: subject.to_owned(),
                max: self.config.server_answer_max,
            },
            Ok(Err(error)) if is_canceled(&error) => timed_out(),
            Ok(Err(error)) => return Err(error),
            Err(_) => timed_out(),
        };
        let message =
            "a server that runs a branch user's code exceeded a limit; its session is closed";
        condition::occur("branches_server_given_up", subject, &error, message);
        Err(error)
    }

    /// Awaits work that has a deadline of its own; gives it up when Egret stops.
    pub(crate) async fn await_unless_stopping<T>(
        &self,
        work: impl Future<Output = Result<T, PostgresError>>,
    ) -> Result<T, BranchesError> {
        tokio::select! {
            result = work => Ok(result?),
            () = self.await_stop() => Err(BranchesError::Stopping),
        }
    }

    /// A session as superuser in a database of a copy that is always there, and how it was
    /// connected: in `postgres`, or in `template1` where a user has dropped that. To be awaited
    /// [`Inner::within_bounds`].
    pub(crate) async fn connect_as_superuser(
        &self,
        socket_dir: &Path,
        limit: &Arc<ReceiveLimit>,
    ) -> Result<(Client, Config), BranchesError> {
        let major = self.state()?.binaries.major;
        let mut connection =
            socket_connection(socket_dir, SOCKET_PORT, major, "postgres", "branches");
        // The server ends a statement that Egret has given up. The later option wins.
        let options = format!(
            "{} -c statement_timeout={}",
            connection.get_options().unwrap_or_default(),
            self.config.server_timeout.0.min(i32::MAX as u64),
        );
        connection.options(options);
        match bounded::connect(&connection, limit).await {
            Err(PostgresError::Server { error, .. })
                if error.code() == Some(&SqlState::UNDEFINED_DATABASE) =>
            {
                connection.dbname("template1");
                Ok((bounded::connect(&connection, limit).await?, connection))
            }
            connected => Ok((connected?, connection)),
        }
    }
}

/// Whether the server itself ended a statement after its time.
fn is_canceled(error: &BranchesError) -> bool {
    let BranchesError::Postgres(PostgresError::Server { error, .. }) = error else {
        return false;
    };
    error.code() == Some(&SqlState::QUERY_CANCELED)
}
