//! The SCRAM exchange with a client, over PostgreSQL's protocol.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use egret_base::Entropy;
use egret_postgres::wire::SaslInitialResponse;
use egret_postgres::wire::scram::{self, Outcome, ScramServer, Verifier};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::client::ConnectError;
use super::directory::{ConnectionRefusal, Entry};
use super::handshakes::Handshake;
use super::metrics::Cause;
use super::negotiation::ClientStream;
use super::reply;

/// The largest message of an exchange, in bytes; PostgreSQL's own limit.
const MESSAGE_BYTES_MAX: u32 = 1024;

/// Random bytes in a nonce, as many as PostgreSQL uses.
const NONCE_BYTES: usize = 18;

/// A client that has named its user and is not authenticated yet.
pub(super) struct Claimant<'a> {
    pub(super) stream: &'a mut ClientStream,
    pub(super) user: &'a str,
    /// Notified when the proxy starts to wait for a message of the client.
    pub(super) handshake: &'a Handshake,
}

impl Claimant<'_> {
    /// Sends a message and returns the body of the client's answer.
    async fn request_response(&mut self, message: &[u8]) -> Result<Vec<u8>, ConnectError> {
        send_message(self.stream, message).await?;
        self.handshake.mark_waiting(Instant::now());
        read_response(self.stream).await
    }
}

/// Has the client prove that it knows the password of `entry`'s role.
///
/// A client that named another role, or a branch that does not exist, goes through the same
/// exchange with the verifier `decoy` and fails at its end: the answers do not tell which roles and
/// branches exist.
pub(super) async fn authenticate(
    mut claimant: Claimant<'_>,
    entry: Option<&Entry>,
    decoy: Verifier,
    entropy: &dyn Entropy,
) -> Result<(), ConnectError> {
    let user = claimant.user;
    let verifier = match entry.filter(|entry| entry.role == user) {
        Some(entry) => entry.verifier.clone(),
        None => Arc::new(decoy),
    };
    let mut nonce = [0; NONCE_BYTES];
    entropy.fill(&mut nonce);
    let mut exchange = ScramServer::new(verifier, BASE64.encode(nonce));
    let response = claimant.request_response(&reply::sasl_mechanisms()).await?;
    let initial_response = SaslInitialResponse::decode(&response)
        .map_err(|error| protocol_error(error.to_string()))?;
    if initial_response.mechanism != scram::MECHANISM {
        return Err(protocol_error("client selected an invalid SASL authentication mechanism"));
    }
    let mut outcome = exchange.step(initial_response.data);
    loop {
        match outcome.map_err(|error| protocol_error(error.to_string()))? {
            Outcome::Continue(data) => {
                let body = claimant.request_response(&reply::sasl_continue(&data)).await?;
                outcome = exchange.step(&body);
            }
            Outcome::Accepted(data) => {
                return send_message(claimant.stream, &reply::authenticated(&data)).await;
            }
            Outcome::Denied => {
                let message = format!("password authentication failed for user \"{user}\"");
                let refusal = ConnectionRefusal::new("28P01", message).with_hint(
                    "a branch that does not exist is refused in the same way: `egret branch list` \
                     lists the existing ones",
                );
                return Err(ConnectError::refused(Cause::Password, refusal));
            }
        }
    }
}

/// Runs `work`; returns a refusal if the connection is evicted first.
pub(super) async fn run_unless_evicted<T>(
    eviction: &CancellationToken,
    work: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    tokio::select! {
        result = work => result,
        () = eviction.cancelled() => {
            let message = "too many connections waiting for authentication";
            Err(ConnectError::refused(Cause::HandshakesMax, ConnectionRefusal::new("53300", message)))
        }
    }
}

/// The body of the next message, which must be a SASL response.
async fn read_response(stream: &mut ClientStream) -> Result<Vec<u8>, ConnectError> {
    let tag = stream.read_u8().await.map_err(ConnectError::disconnected)?;
    let length = stream.read_u32().await.map_err(ConnectError::disconnected)?;
    match tag {
        b'p' => {}
        b'X' => {
            return Err(ConnectError::disconnected(io::ErrorKind::UnexpectedEof.into()));
        }
        other => {
            return Err(protocol_error(format!(
                "expected SASL response, got message type {other}"
            )));
        }
    }
    let Some(body_bytes) = length.checked_sub(4).filter(|body| *body <= MESSAGE_BYTES_MAX) else {
        return Err(protocol_error(format!("invalid length of SASL response: {length} bytes")));
    };
    let mut body = vec![0; body_bytes as usize];
    stream.read_exact(&mut body).await.map_err(ConnectError::disconnected)?;
    Ok(body)
}

async fn send_message(stream: &mut ClientStream, reply: &[u8]) -> Result<(), ConnectError> {
    stream.write_all(reply).await.map_err(ConnectError::disconnected)?;
    stream.flush().await.map_err(ConnectError::disconnected)
}

fn protocol_error(message: impl Into<String>) -> ConnectError {
    ConnectError::refused(Cause::Protocol, ConnectionRefusal::new("08P01", message))
}
