//! Whose process a connection on this machine leads to.
//!
//! The admin token of the data directory goes only to the Egret that works there, but any local
//! user may listen on its port while it is stopped. The kernel says in `/proc/net/tcp` which user
//! holds the socket at the other end (proc_pid_net(5)). It is asked after each connection is made
//! and before a byte is sent, so that a socket which changes hands in between is noticed too.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::task::{Context, Poll};

use reqwest::Url;
use tower::{BoxError, Layer, Service};

/// Root may run Egret for another user's data directory, and Docker's proxy runs as root.
const ROOT: u32 = 0;

/// Why a connection is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListenerError {
    /// Another user's process listens there.
    #[error("user id {found} listens on port {port}, but {owner} owns the data directory")]
    Foreign {
        /// Whose socket it is.
        found: u32,
        port: u16,
        /// Whose it should be.
        owner: u32,
    },
    /// The socket is not in the kernel's table.
    #[error("cannot find out which user's process listens on port {port}")]
    Unknown { port: u16 },
}

/// Lets connections through whose other end belongs to one user.
#[derive(Clone, Debug)]
pub(super) struct ListenerGuard {
    addresses: Vec<IpAddr>,
    port: u16,
    owner: u32,
}

impl ListenerGuard {
    /// For connections to a server of this machine that `owner` runs.
    pub(super) fn new(url: &Url, owner: u32) -> Self {
        let host = url.host_str().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = literal.parse().map_or_else(
            |_| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            |address| vec![address],
        );
        Self { addresses, port: url.port_or_known_default().unwrap_or_default(), owner }
    }

    /// Looks at the sockets of this machine.
    ///
    /// # Errors
    /// [`ListenerError`]: another user's process is at the other end, or none that is known.
    pub(super) fn check(&self) -> Result<(), ListenerError> {
        let read_table = |name| std::fs::read_to_string(name).unwrap_or_default();
        let tables = [read_table("/proc/net/tcp"), read_table("/proc/net/tcp6")];
        self.check_tables(&tables)
    }

    fn check_tables(&self, tables: &[String]) -> Result<(), ListenerError> {
        let mut is_listening = false;
        let sockets = tables.iter().flat_map(|table| table.lines());
        for socket in sockets.filter_map(Socket::parse) {
            let is_wildcard = socket.is_listening && socket.address.is_unspecified();
            if socket.port != self.port
                || !(is_wildcard || self.addresses.contains(&socket.address))
            {
                continue;
            }
            if socket.owner != ROOT && socket.owner != self.owner {
                return Err(ListenerError::Foreign {
                    found: socket.owner,
                    port: self.port,
                    owner: self.owner,
                });
            }
            is_listening |= socket.is_listening;
        }
        if is_listening {
            return Ok(());
        }
        Err(ListenerError::Unknown { port: self.port })
    }
}

/// A line of `/proc/net/tcp`.
struct Socket {
    address: IpAddr,
    port: u16,
    is_listening: bool,
    owner: u32,
}

impl Socket {
    /// Fields: number, local address, remote address, state, queues, timer, retransmissions, user.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().take(8).collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        Some(Self {
            address: parse_address(address)?,
            port: u16::from_str_radix(port, 16).ok()?,
            is_listening: *fields.get(3)? == "0A",
            owner: fields.get(7)?.parse().ok()?,
        })
    }
}

/// Words of 32 bits in the machine's own order. Version 4 in version 6 is version 4.
fn parse_address(digits: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for start in (0..digits.len()).step_by(8) {
        let word = u32::from_str_radix(digits.get(start..start + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(Ipv4Addr::from(bytes).into());
    }
    let bytes = <[u8; 16]>::try_from(bytes.as_slice()).ok()?;
    Some(Ipv6Addr::from(bytes).to_canonical())
}

impl<S> Layer<S> for ListenerGuard {
    type Service = GuardedConnector<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GuardedConnector { inner, guard: self.clone() }
    }
}

/// Makes connections and lets the guard look at each.
#[derive(Clone)]
pub(super) struct GuardedConnector<S> {
    inner: S,
    guard: ListenerGuard,
}

impl<S, R> Service<R> for GuardedConnector<S>
where
    S: Service<R, Error = BoxError>,
    S::Future: Send + 'static,
    S::Response: Send,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let connecting = self.inner.call(request);
        let guard = self.guard.clone();
        Box::pin(async move {
            let connection = connecting.await?;
            guard.check()?;
            Ok(connection)
        })
    }
}

#[cfg(test)]
mod tests;
