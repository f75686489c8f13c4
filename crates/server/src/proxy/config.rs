//! The proxy's settings, section `proxy` of `egret.toml`.

use egret_base::settings::{ByteSize, ConfigDuration};

egret_base::settings! {
    /// Settings of the PostgreSQL proxy.
    pub struct ProxyConfig in "proxy" {
        /// IP address that the proxy listens on. Any address but loopback should have TLS.
        address: String = "127.0.0.1".to_owned(),
        /// TCP port of the proxy; 0 selects a free one.
        port: u16 = 7432,
        /// Largest number of authenticated sessions at once; beyond it a client gets SQLSTATE
        /// 53300.
        sessions_max: u32 = 1000; positive,
        /// Largest number of connections at once that are not authenticated yet. Beyond it, the
        /// address with the most of them loses one, if it has twice as many as the new connection's
        /// address, or if one of its clients has kept Egret waiting for 100 ms for its startup
        /// packet or up to 1 s for a message of its authentication; otherwise the new connection
        /// gets 53300.
        handshakes_max: u32 = 1024; positive,
        /// Largest number of these from one address (of IPv6, from one /64); beyond it, one is
        /// closed whose client has kept Egret waiting as long.
        connections_per_address_max: u32 = 256; positive,
        /// Largest startup packet in bytes, PostgreSQL's own limit by default; beyond it 08P01.
        startup_bytes_max: ByteSize = ByteSize(10_000); positive,
        /// Longest time from a client's connection to the proof of its password.
        authentication_timeout: ConfigDuration = ConfigDuration::secs(30); positive,
        /// Longest time for a branch to resume and open a session; beyond it 57P03.
        attach_timeout: ConfigDuration = ConfigDuration::secs(60); positive,
        /// How long a statement may still run for a client that has closed its sending side; it is
        /// then cancelled, because such a client has usually disconnected.
        half_close_timeout: ConfigDuration = ConfigDuration::secs(60),
        /// Longest time for transactions to finish when Egret stops; idle sessions end at once.
        stop_timeout: ConfigDuration = ConfigDuration::secs(5),
    }
}
