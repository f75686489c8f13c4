//! The proxy's settings, section `proxy` of `egret.toml`.

use egret_base::settings::{Size, Span};

egret_base::settings! {
    /// Settings of the PostgreSQL proxy.
    pub struct ProxyConfig in "proxy" {
        /// IP address the proxy listens on. Anything but loopback should come with TLS.
        address: String = "127.0.0.1".to_owned(),
        /// TCP port of the proxy; 0 takes a free one.
        port: u16 = 7432,
        /// Most authenticated sessions at once; beyond it a client gets SQLSTATE 53300.
        sessions_max: u32 = 1000; positive,
        /// Most connections at once that are not authenticated yet; beyond it the address with the most of them gives
        /// one up, where these are twice as many as those of the new one's address, or where a client has let Egret
        /// wait for 100 ms for its startup packet or up to 1 s for a message of its proof; else the new one gets 53300.
        handshakes_max: u32 = 1024; positive,
        /// Most of these from one address (of IPv6, from one /64); beyond it one is closed whose client has let Egret
        /// wait as long.
        connections_per_address_max: u32 = 256; positive,
        /// Largest startup packet in bytes, PostgreSQL's own limit by default; beyond it 08P01.
        startup_bytes_max: Size = Size(10_000); positive,
        /// Longest time a client may take from connecting to having proved its password.
        authentication_timeout: Span = Span::secs(30); positive,
        /// Longest time a branch may take to wake and open a session; beyond it 57P03.
        attach_timeout: Span = Span::secs(60); positive,
        /// How long a statement may still run for a client that has closed its sending side; it is
        /// cancelled then, since such a client is usually gone.
        half_close_timeout: Span = Span::secs(60),
        /// Longest time that transactions get to finish when Egret stops; idle sessions end at
        /// once.
        stop_timeout: Span = Span::secs(5),
    }
}
