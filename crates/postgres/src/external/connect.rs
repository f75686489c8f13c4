//! Sessions that stay sessions: behind a pooler in transaction mode there is none.

use tokio_postgres::Client;

use crate::error::{PostgresError, server_error};
use crate::pool;
use crate::session_settings;

/// Opens a session with Egret's settings where it stays one session.
///
/// # Errors
/// [`PostgresError::TransactionMode`] behind a pooler in that mode; the server's.
pub async fn connect(connection: &tokio_postgres::Config) -> Result<Client, PostgresError> {
    connect_until(connection, std::future::pending()).await
}

/// Opens a session as [`connect`] does. Its connection is dropped as soon as `end` is over.
pub(super) async fn connect_until(
    connection: &tokio_postgres::Config,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<Client, PostgresError> {
    let client = pool::connect_with_defaults_until(connection, end).await?;
    // The server may freeze at any moment.
    let setting_up = async {
        if !keeps_session(connection, &client).await? {
            return Err(PostgresError::TransactionMode);
        }
        session_settings::apply(connection, &client).await
    };
    pool::within_timeout(connection, setting_up).await?;
    Ok(client)
}

/// Whether a connection keeps its session, without which there is no LISTEN and no lock.
///
/// A pooler in transaction mode lends the server connection of an idle client to another one, and
/// with it its session settings: the check sets one, lets a second client take a turn, and reads it
/// again. Neither session has Egret's settings, which other clients would get.
pub(super) async fn keeps_session(
    connection: &tokio_postgres::Config,
    client: &Client,
) -> Result<bool, PostgresError> {
    const PROBE: &str = "SELECT pg_catalog.current_setting('egret.session_probe', true)";
    client
        .batch_execute("SET egret.session_probe = 'first'")
        .await
        .map_err(server_error("set a session variable"))?;
    let second = pool::connect_with_defaults(connection).await?;
    second
        .batch_execute("BEGIN; SET egret.session_probe = 'second'")
        .await
        .map_err(server_error("set a session variable"))?;
    let value: Option<String> =
        client.query_one(PROBE, &[]).await.map_err(server_error("read a session variable"))?.get(0);
    second.batch_execute("ROLLBACK").await.map_err(server_error("roll back"))?;
    Ok(value.as_deref() == Some("first"))
}
