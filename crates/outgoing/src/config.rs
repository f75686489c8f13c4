//! The settings of outgoing requests.

egret_base::settings! {
    /// Settings of the requests that Egret sends to other services.
    pub struct OutgoingConfig in "outgoing" {
        /// Destinations of callbacks and webhooks beyond the public internet, separated by commas:
        /// a host name (`hooks.internal`), one with a port (`hooks.internal:8080`), every name
        /// below a domain (`*.internal`), an address with a port (`10.0.0.7:8080`), or a network
        /// (`10.0.0.0/8`, `fd00::/8`). Addresses of this machine, of private networks, link-local
        /// and other special ones are refused unless they are listed here. Destinations in the
        /// operator's own configuration (scrape targets, receivers of alerts) are not restricted.
        allow: String = String::new(),
    }
}
