//! A client that speaks the protocol byte by byte, so that it can also misspeak.

use std::net::SocketAddr;

use bytes::BytesMut;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use postgres_protocol::message::backend::{Header, Message};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::proxy::running_proxy::{PASSWORD, ROLE, RunningProxy};

pub struct Raw {
    pub stream: TcpStream,
    inbound: BytesMut,
}

impl Raw {
    pub async fn connect(proxy: &RunningProxy) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        Self { stream, inbound: BytesMut::new() }
    }

    /// From another address of this machine.
    pub async fn connect_from(address: &str, door: &RunningProxy) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        let own = SocketAddr::new(address.parse().unwrap(), 0);
        socket.bind(own).unwrap();
        let proxy_address = SocketAddr::from(([127, 0, 0, 1], door.port()));
        Self { stream: socket.connect(proxy_address).await.unwrap(), inbound: BytesMut::new() }
    }

    /// Sends bytes; a server that has closed its end already is no failure.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next message with its header, or `None` at the end of the connection.
    pub async fn frame(&mut self) -> Option<BytesMut> {
        loop {
            if let Some(header) = Header::parse(&self.inbound).unwrap() {
                let total = usize::try_from(header.len()).unwrap() + 1;
                if self.inbound.len() >= total {
                    return Some(self.inbound.split_to(total));
                }
            }
            if self.stream.read_buf(&mut self.inbound).await.ok()? == 0 {
                return None;
            }
        }
    }

    pub async fn message(&mut self) -> Option<Message> {
        Message::parse(&mut self.frame().await?).unwrap()
    }

    /// SQLSTATE and message of the error that comes next.
    pub async fn error(&mut self) -> String {
        loop {
            let frame = self.frame().await.expect("an error comes before the end");
            if frame[0] == b'E' {
                return parse_error(&frame);
            }
        }
    }

    /// Whatever else comes until the connection ends.
    pub async fn read_to_end(&mut self) -> Vec<u8> {
        let mut rest = self.inbound.split().to_vec();
        let _ = self.stream.read_to_end(&mut rest).await;
        rest
    }

    pub async fn startup(&mut self, parameters: &[(&str, &str)]) {
        let mut packet = BytesMut::new();
        frontend::startup_message(parameters.iter().copied(), &mut packet).unwrap();
        self.send(&packet).await;
    }

    /// A client that tries until it is authenticated.
    pub async fn connect_with_retries(proxy: &RunningProxy) -> Self {
        loop {
            let mut client = Self::connect(proxy).await;
            if client.start_session(proxy).await {
                client.finish_authentication().await;
                return client;
            }
        }
    }

    /// Sends the startup packet; returns whether the server begins a SASL exchange.
    pub async fn start_session(&mut self, proxy: &RunningProxy) -> bool {
        let database = proxy.database();
        self.startup(&[("user", ROLE), ("database", &database)]).await;
        let Some(frame) = self.frame().await else {
            return false;
        };
        let asks = frame[0] == b'R';
        let behind = std::mem::replace(&mut self.inbound, frame);
        self.inbound.unsplit(behind);
        asks
    }

    /// Authenticates; the messages after AuthenticationOk are not read yet.
    pub async fn authenticate(&mut self, proxy: &RunningProxy) {
        assert!(self.start_session(proxy).await, "it is asked for a proof");
        self.finish_authentication().await;
    }

    async fn finish_authentication(&mut self) {
        let mut client = ScramSha256::new(PASSWORD.as_bytes(), ChannelBinding::unsupported());
        let mut reply = BytesMut::new();
        loop {
            reply.clear();
            match self.message().await.unwrap() {
                Message::AuthenticationSasl(_) => {
                    let first = client.message();
                    frontend::sasl_initial_response("SCRAM-SHA-256", first, &mut reply).unwrap();
                }
                Message::AuthenticationSaslContinue(body) => {
                    client.update(body.data()).unwrap();
                    frontend::sasl_response(client.message(), &mut reply).unwrap();
                }
                Message::AuthenticationSaslFinal(body) => client.finish(body.data()).unwrap(),
                Message::AuthenticationOk => return,
                _ => panic!("an authentication message was expected"),
            }
            self.send(&reply).await;
        }
    }

    /// Reads on until the session is ready for a query.
    pub async fn await_ready(&mut self) {
        while !matches!(self.message().await.unwrap(), Message::ReadyForQuery(_)) {}
    }

    pub async fn query(&mut self, sql: &str) {
        let mut message = BytesMut::new();
        frontend::query(sql, &mut message).unwrap();
        self.send(&message).await;
    }
}

/// SQLSTATE and message of an ErrorResponse.
fn parse_error(message: &[u8]) -> String {
    let fields = &message[5..];
    let field = |tag: u8| {
        let found = fields.split(|byte| *byte == 0).find(|field| field.first() == Some(&tag));
        String::from_utf8(found.unwrap_or_default().iter().skip(1).copied().collect()).unwrap()
    };
    format!("{} {}", field(b'C'), field(b'M'))
}
