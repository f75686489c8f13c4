//! The packets before authentication: negotiation of encryption, then the startup or cancel packet.

use std::io;
use std::sync::Arc;

use egret_postgres::wire::{FirstPacket, PacketError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::directory::ConnectionRefusal;
use super::metrics::Cause;

/// The protocol's name in TLS, registered with IANA.
const ALPN: &[u8] = b"postgresql";

/// First byte of a TLS handshake that comes without having been asked for
/// (`sslnegotiation=direct`).
const TLS_HANDSHAKE: u8 = 0x16;

/// A client's connection, encrypted or not.
pub(super) type ClientStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The first packet of a connection, or the refusal that is still to be sent to it.
pub(super) type NegotiationResult = Result<FirstPacket, (Cause, ConnectionRefusal)>;

/// An acceptor with the given certificate for PostgreSQL's protocol.
pub(super) fn tls_acceptor(tls: Arc<rustls::ServerConfig>) -> TlsAcceptor {
    let mut config = Arc::unwrap_or_clone(tls);
    config.alpn_protocols = vec![ALPN.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Negotiates encryption and reads up to the cancel or startup packet.
///
/// # Errors
/// When the connection broke, or TLS failed, so that nothing more can be said.
pub(super) async fn negotiate(
    mut tcp: TcpStream,
    tls: Option<&TlsAcceptor>,
    startup_bytes_max: u64,
) -> Result<(ClientStream, NegotiationResult), (Cause, io::Error)> {
    let client_left = |error| (Cause::ClientLeft, error);
    if let Some(acceptor) = tls
        && peek_first_byte(&tcp).await.map_err(client_left)? == Some(TLS_HANDSHAKE)
    {
        let stream = accept_direct_tls(tcp, acceptor).await?;
        return read_first_packet(Either::Right(stream), startup_bytes_max).await;
    }
    let mut gss_refused = false;
    loop {
        let packet = match read_packet(&mut tcp, startup_bytes_max).await.map_err(client_left)? {
            Ok(packet) => packet,
            Err(refusal) => return Ok((Either::Left(tcp), Err(refusal))),
        };
        match (packet, tls) {
            // Bytes sent in the clear behind this packet stay in the socket, where TLS finds and
            // refuses them: an attacker cannot inject them before the encrypted session.
            (FirstPacket::Ssl, Some(acceptor)) => {
                tcp.write_all(b"S").await.map_err(client_left)?;
                let stream = accept_tls(tcp, acceptor).await?;
                return read_first_packet(Either::Right(stream), startup_bytes_max).await;
            }
            (FirstPacket::Ssl, None) => {
                tcp.write_all(b"N").await.map_err(client_left)?;
                return read_packet_after_refusal(tcp, startup_bytes_max).await;
            }
            (FirstPacket::GssEncryption, _) if !gss_refused => {
                gss_refused = true;
                tcp.write_all(b"N").await.map_err(client_left)?;
            }
            (other, _) => return Ok((Either::Left(tcp), reject_second_encryption(other))),
        }
    }
}

/// Reads the next packet after TLS was refused: the client may still request GSSAPI encryption.
async fn read_packet_after_refusal(
    mut tcp: TcpStream,
    startup_bytes_max: u64,
) -> Result<(ClientStream, NegotiationResult), (Cause, io::Error)> {
    let client_left = |error| (Cause::ClientLeft, error);
    let mut packet = read_packet(&mut tcp, startup_bytes_max).await.map_err(client_left)?;
    if packet == Ok(FirstPacket::GssEncryption) {
        tcp.write_all(b"N").await.map_err(client_left)?;
        packet = read_packet(&mut tcp, startup_bytes_max).await.map_err(client_left)?;
    }
    Ok((Either::Left(tcp), packet.and_then(reject_second_encryption)))
}

async fn read_first_packet(
    mut stream: ClientStream,
    startup_bytes_max: u64,
) -> Result<(ClientStream, NegotiationResult), (Cause, io::Error)> {
    let read = read_packet(&mut stream, startup_bytes_max).await;
    let packet = read.map_err(|error| (Cause::ClientLeft, error))?;
    Ok((stream, packet.and_then(reject_second_encryption)))
}

/// Refuses a second request for encryption.
fn reject_second_encryption(packet: FirstPacket) -> NegotiationResult {
    match packet {
        FirstPacket::Ssl | FirstPacket::GssEncryption => Err((
            Cause::Protocol,
            ConnectionRefusal::new("08P01", "encryption was asked for twice"),
        )),
        other => Ok(other),
    }
}

async fn peek_first_byte(tcp: &TcpStream) -> io::Result<Option<u8>> {
    let mut byte = [0];
    let peeked = tcp.peek(&mut byte).await?;
    Ok((peeked == 1).then_some(byte[0]))
}

async fn accept_direct_tls(
    tcp: TcpStream,
    acceptor: &TlsAcceptor,
) -> Result<Box<TlsStream<TcpStream>>, (Cause, io::Error)> {
    let stream = accept_tls(tcp, acceptor).await?;
    // Without ALPN a client of another protocol could be redirected here (ALPACA attack).
    if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
        let missing = io::Error::other("direct TLS came without the ALPN protocol postgresql");
        return Err((Cause::Tls, missing));
    }
    Ok(stream)
}

async fn accept_tls(
    tcp: TcpStream,
    acceptor: &TlsAcceptor,
) -> Result<Box<TlsStream<TcpStream>>, (Cause, io::Error)> {
    match acceptor.accept(tcp).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err((Cause::Tls, error)),
    }
}

/// Reads one packet of at most the allowed size, not a byte further.
async fn read_packet(
    stream: &mut (impl AsyncRead + Unpin),
    startup_bytes_max: u64,
) -> io::Result<NegotiationResult> {
    let length = u64::from(stream.read_u32().await?);
    if length > startup_bytes_max {
        let refusal = ConnectionRefusal::new(
            "08P01",
            format!(
                "startup packet of {length} bytes: limit proxy.startup_bytes_max is \
                 {startup_bytes_max} bytes"
            ),
        )
        .with_hint("this port speaks PostgreSQL; send less, or raise the setting");
        return Ok(Err((Cause::StartupTooLarge, refusal)));
    }
    let Some(body_length) = length.checked_sub(4).filter(|body| *body >= 4) else {
        let refusal = ConnectionRefusal::new("08P01", "invalid length of startup packet");
        return Ok(Err((Cause::Protocol, refusal)));
    };
    let mut packet = vec![0; usize::try_from(body_length).expect("the length is within the limit")];
    stream.read_exact(&mut packet).await?;
    Ok(FirstPacket::decode(&packet).map_err(|error| {
        let sqlstate = match error {
            PacketError::Version { .. } => "0A000",
            PacketError::Malformed(_) => "08P01",
        };
        (Cause::Protocol, ConnectionRefusal::new(sqlstate, error.to_string()))
    }))
}
