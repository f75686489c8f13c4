//! LISTEN that survives a restart of the server.
//!
//! Notifications sent while the connection was down are lost, as PostgreSQL says; the listener
//! reports each reconnection, so that its user looks once at what it may have missed.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::sync::{Notify, mpsc};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{PostgresError, describe, server_error};
use crate::external::tls;
use crate::hosts;
use crate::pool::within_timeout;
use crate::retry::Policy;
use crate::session_settings;

/// Notifications waiting to be taken; a slower taker holds the connection back, not memory.
pub(crate) const NOTIFICATIONS_WAITING_MAX: usize = 1_024;

/// Event of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenEvent {
    /// The session listens, for the first time or again: notifications sent before may be lost, so
    /// their receiver must look up what they announce.
    Connected,
    /// A notification on one of the channels.
    Notified {
        /// Name of the channel.
        channel: String,
        /// Payload of the notification.
        payload: String,
    },
}

/// Listens on channels for as long as it is kept.
pub struct Listener {
    events: mpsc::Receiver<ListenEvent>,
    task: tokio::task::JoinHandle<()>,
}

impl Listener {
    /// Starts listening; the first report is [`ListenEvent::Connected`].
    pub fn start(connection: tokio_postgres::Config, channels: Vec<String>) -> Self {
        let (event_sender, events) = mpsc::channel(NOTIFICATIONS_WAITING_MAX);
        let task = tokio::spawn(async move {
            let policy = Policy::default();
            let mut failures = 0;
            while !event_sender.is_closed() {
                let result = match connection.get_ssl_mode() {
                    SslMode::Disable => {
                        listen_once(&connection, NoTls, &channels, &event_sender).await
                    }
                    _ => match tls::tls_config(&connection).map(MakeRustlsConnect::new) {
                        Ok(tls) => listen_once(&connection, tls, &channels, &event_sender).await,
                        Err(error) => Err(error),
                    },
                };
                match result {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        failures += 1;
                        tracing::debug!(%error, "listening was interrupted");
                        tokio::time::sleep(policy.wait_after(failures)).await;
                    }
                }
            }
        });
        Self { events, task }
    }

    /// Waits for the next event; `None` once the listener has ended.
    pub async fn next(&mut self) -> Option<ListenEvent> {
        self.events.recv().await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A session that executes statements and listens at the same time.
pub struct ListeningSession {
    /// Client of the session, for statements.
    pub client: Client,
    /// Notified by each notification, and by the end of the connection.
    pub wakeup: Arc<Notify>,
}

/// Opens a session that listens on a channel. Its connection is dropped as soon as `end` is over.
///
/// # Errors
/// [`PostgresError::Server`]; [`PostgresError::NoHost`] of several hosts;
/// [`PostgresError::ConnectTimeout`].
pub async fn connect_listening(
    connection: &tokio_postgres::Config,
    channel: &str,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<ListeningSession, PostgresError> {
    match connection.get_ssl_mode() {
        SslMode::Disable => connect_listening_over(connection, NoTls, channel, end).await,
        _ => {
            let tls = MakeRustlsConnect::new(tls::tls_config(connection)?);
            connect_listening_over(connection, tls, channel, end).await
        }
    }
}

async fn connect_listening_over<T>(
    connection: &tokio_postgres::Config,
    tls: T,
    channel: &str,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<ListeningSession, PostgresError>
where
    T: MakeTlsConnect<Socket> + Clone,
    T::Stream: Send + 'static,
{
    let connecting = hosts::connect(connection, tls);
    let (client, mut driver) = within_timeout(connection, connecting).await?;
    let wakeup = Arc::new(Notify::new());
    let notifier = wakeup.clone();
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |context| driver.poll_message(context));
        let mut end = std::pin::pin!(end);
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                () = &mut end => None,
            };
            match message {
                Some(Ok(AsyncMessage::Notification(_))) => notifier.notify_one(),
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    tracing::debug!(error = describe(&error), "a listening connection ended");
                    break;
                }
                None => break,
            }
        }
        drop(messages);
        notifier.notify_one();
    });
    let command = format!("LISTEN {}", quote_identifier(channel));
    within_timeout(connection, listen(connection, &client, &command)).await?;
    Ok(ListeningSession { client, wakeup })
}

/// Returns `Ok` when the connection of a session that had listened ended.
async fn listen_once<T: MakeTlsConnect<Socket> + Clone>(
    connection: &tokio_postgres::Config,
    tls: T,
    channels: &[String],
    event_sender: &mpsc::Sender<ListenEvent>,
) -> Result<(), PostgresError> {
    let connecting = hosts::connect(connection, tls);
    let (client, mut driver) = within_timeout(connection, connecting).await?;
    let mut messages = stream::poll_fn(move |context| driver.poll_message(context));
    let commands = channels
        .iter()
        .map(|channel| format!("LISTEN {}", quote_identifier(channel)))
        .collect::<Vec<String>>()
        .join("; ");
    let listening = within_timeout(connection, listen(connection, &client, &commands));
    let mut listening = std::pin::pin!(listening);
    let mut is_listening = false;
    loop {
        tokio::select! {
            result = &mut listening, if !is_listening => {
                result?;
                is_listening = true;
                if event_sender.send(ListenEvent::Connected).await.is_err() {
                    return Ok(());
                }
            }
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    let event = ListenEvent::Notified {
                        channel: notification.channel().to_owned(),
                        payload: notification.payload().to_owned(),
                    };
                    if event_sender.send(event).await.is_err() {
                        return Ok(());
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) if !is_listening => return Err(server_error("LISTEN")(error)),
                Some(Err(error)) => {
                    tracing::debug!(error = describe(&error), "the listening connection ended");
                    return Ok(());
                }
                None if !is_listening => {
                    // Without the driver, whatever waits for the server's reply fails.
                    drop(messages);
                    return listening.await;
                }
                None => return Ok(()),
            }
        }
    }
}

/// Sets a session up and has it listen.
async fn listen(
    connection: &tokio_postgres::Config,
    client: &Client,
    commands: &str,
) -> Result<(), PostgresError> {
    session_settings::apply(connection, client).await?;
    let listening = client.batch_execute(commands).await;
    listening.map_err(server_error("LISTEN"))
}

/// An identifier in double quotes, for SQL texts that cannot take a parameter.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A literal in single quotes, for SQL texts that cannot take a parameter.
pub fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

#[cfg(test)]
mod tests;
