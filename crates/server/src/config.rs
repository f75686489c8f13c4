//! Settings of the HTTP and gRPC server, section `server` of `egret.toml`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use egret_base::settings::{ByteSize, ConfigDuration};

use crate::error::ServerError;
use crate::forwarded::TrustedProxies;
use crate::pace::PaceLimit;

egret_base::settings! {
    /// Settings of the HTTP and gRPC door.
    pub struct ServerConfig in "server" {
        /// IP address that the server listens on. Any address but loopback should have TLS.
        address: String = "127.0.0.1".to_owned(),
        /// TCP port of HTTP and gRPC; 0 selects a free one.
        port: u16 = 7070,
        /// PEM file with the certificate chain; with `tls_key`, only TLS connections are accepted.
        tls_certificate: Option<PathBuf> = None,
        /// PEM file with the certificate's private key.
        tls_key: Option<PathBuf> = None,
        /// Whether clients of HTTP and gRPC must present a certificate of an authority in
        /// `tls_client_ca`: `off` (none is requested), `optional` (a presented one must be valid)
        /// or `required` (no connection without one). Requests need a token in any case.
        tls_client_auth: String = "off".to_owned(),
        /// PEM file with certificates of the authorities of clients. Only root and Egret's user may
        /// be able to change it.
        tls_client_ca: Option<PathBuf> = None,
        /// Addresses and networks of reverse proxies, separated by commas, such as `10.0.0.0/8,
        /// ::1`. For a request that one of them forwards, the client's address is the right-most
        /// one in `forwarded_header` that does not belong to them; it is used in logs and in limits
        /// of requests. The header of other peers is ignored.
        trusted_proxies: String = String::new(),
        /// Header in which the proxies of `trusted_proxies` name the client: `x-forwarded-for` or
        /// `forwarded` (RFC 7239). The proxies must set this header themselves or append to it;
        /// clients can write anything into the other one.
        forwarded_header: String = "x-forwarded-for".to_owned(),
        /// Largest request body in bytes, as sent and as decompressed. Larger ones get 413.
        body_bytes_max: ByteSize = ByteSize::mib(4); positive,
        /// Largest request head (path, names and values of all headers) in bytes; beyond it 431.
        header_bytes_max: ByteSize = ByteSize(32 << 10); positive,
        /// Largest number of headers of one request; beyond it 431.
        headers_max: u32 = 64; positive,
        /// Largest number of requests in progress at once over all connections; beyond it 503 with
        /// `Retry-After`.
        concurrency_max: u32 = 2_048; positive,
        /// Largest number of these of one tenant; beyond it 429 with `Retry-After`.
        concurrency_per_tenant_max: u32 = 1_024; positive,
        /// Largest number of these with one token; beyond it 429 with `Retry-After`.
        concurrency_per_token_max: u32 = 512; positive,
        /// Largest number of streams, which last as long as their clients want, such as those of
        /// workers, subscriptions and long polls; beyond it 503 with `Retry-After`. Streams do not
        /// count among `concurrency_max`.
        streams_max: u32 = 32_768; positive,
        /// Largest number of these of one tenant; beyond it 429 with `Retry-After`.
        streams_per_tenant_max: u32 = 16_384; positive,
        /// Largest number of these with one token; beyond it 429 with `Retry-After`.
        streams_per_token_max: u32 = 12_288; positive,
        /// Largest memory for request bodies at once, as received and as decompressed; beyond it
        /// 503 with `Retry-After`. Bodies and messages of up to 64 KiB are not counted.
        body_memory_max: ByteSize = ByteSize::mib(1024); positive,
        /// Largest part of this memory for one tenant; beyond it 503 with `Retry-After`.
        body_memory_per_tenant_max: ByteSize = ByteSize::mib(512); positive,
        /// Largest part of this memory for one token; beyond it 503 with `Retry-After`. It must
        /// hold the largest body that is accepted: see `series.decoded_bytes_max`.
        body_memory_per_token_max: ByteSize = ByteSize::mib(384); positive,
        /// Largest number of requests without a token in progress at once, such as those for
        /// `/docs`; beyond it 503. They do not count among `concurrency_max`. One connection may
        /// have 16 of them.
        public_requests_max: u32 = 1_024; positive,
        /// Largest number of these from one address (of IPv6, from one /64). When this limit or the
        /// total one is reached, the connection with the most of them is closed in favour of one
        /// with fewer; if there is none, the response is 503.
        public_requests_per_address_max: u32 = 64; positive,
        /// Largest number of open connections; beyond it a connection gets 503 and is closed. Egret
        /// raises its limit on open files as far as the hard limit allows, and warns at its start
        /// if that is not enough.
        connections_max: u32 = 12_000; positive,
        /// Largest number of open connections from one address (of IPv6, from one /64) on which no
        /// request has sent a token yet; beyond it the oldest of them is closed. When
        /// `connections_max` is reached, the oldest of all such connections is closed.
        connections_per_address_max: u32 = 2_048; positive,
        /// Largest number of requests at once on one HTTP/2 connection; beyond it the client waits.
        http2_streams_max: u32 = 256; positive,
        /// Longest time until a handler begins its response; beyond it 504.
        request_timeout: ConfigDuration = ConfigDuration::secs(300); positive,
        /// Longest time for a client's TLS handshake or request head; an idle HTTP/1.1 connection
        /// is therefore closed after it.
        header_timeout: ConfigDuration = ConfigDuration::secs(30); positive,
        /// Longest total time that a client may keep the server waiting for the bytes of a
        /// request's body or for space to write a response. Each second's worth of bytes
        /// (`transfer_rate_min`) adds a second again. Beyond it the request gets 408, or the
        /// response is aborted.
        transfer_timeout: ConfigDuration = ConfigDuration::secs(30); positive,
        /// Bytes per second that a client must at least send or read while the server waits for it.
        transfer_rate_min: ByteSize = ByteSize(1 << 10); positive,
        /// Longest time for requests in flight to finish when the server stops.
        shutdown_timeout: ConfigDuration = ConfigDuration::secs(10),
        /// Whether each request is logged (never with its query, headers or body), except
        /// `/healthz` and `/readyz`.
        access_log: bool = true,
        /// Whether changes and refused attempts are kept in `audit/` below the data directory, for
        /// `egret audit`.
        audit_log: bool = true,
        /// Size at which a file of the audit log is rotated, in bytes.
        audit_file_bytes_max: ByteSize = ByteSize::mib(16); positive,
        /// Largest number of files of the audit log; then the oldest is deleted.
        audit_files_max: u32 = 16; positive,
        /// Longest CPU profile that `/debug/profile` accepts; keep it below `request_timeout`.
        profile_duration_max: ConfigDuration = ConfigDuration::secs(60),
    }
}

impl ServerConfig {
    /// The address to listen on.
    ///
    /// # Errors
    /// [`ServerError::Setting`] when `server.address` is no IP address.
    pub fn socket_address(&self) -> Result<SocketAddr, ServerError> {
        let address: IpAddr = self.address.parse().map_err(|_| ServerError::Setting {
            setting: "server.address",
            message: format!(
                "`{}` is not an IP address: write for example 127.0.0.1 or ::1",
                self.address
            ),
        })?;
        Ok(SocketAddr::new(address, self.port))
    }

    /// Checks the settings that hold addresses.
    ///
    /// # Errors
    /// [`ServerError::Setting`] with the first such setting.
    pub fn check(&self) -> Result<(), ServerError> {
        self.trusted_proxies()?;
        self.socket_address().map(|_| ())
    }

    /// The proxies that are trusted to name the addresses of clients.
    pub(crate) fn trusted_proxies(&self) -> Result<TrustedProxies, ServerError> {
        let proxies = TrustedProxies::read(&self.trusted_proxies, &self.forwarded_header);
        proxies.map_err(|(setting, message)| ServerError::Setting { setting, message })
    }

    /// How long a client may keep the server waiting.
    pub(crate) fn pace_limit(&self) -> PaceLimit {
        PaceLimit {
            timeout: self.transfer_timeout.duration(),
            bytes_per_second: self.transfer_rate_min.bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
