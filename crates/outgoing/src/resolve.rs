//! Resolves names once, and returns only addresses to which requests may go.
//!
//! The connection is made to what is returned here, so a name server that answers differently the
//! next time (DNS rebinding) leads nowhere else.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::destinations::Destinations;

/// The addresses that a name stands for.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves host names to addresses.
pub trait Lookup: Send + Sync {
    /// The addresses of a name.
    fn lookup(&self, name: &str) -> LookupFuture;
}

/// Resolves names as the machine does.
pub(crate) struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, name: &str) -> LookupFuture {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|socket| socket.ip()).collect())
        })
    }
}

/// Leaves out addresses to which requests may not go.
pub(crate) struct GuardedResolver(pub(crate) Destinations);

/// Resolves every name, for what the operator's configuration names.
pub(crate) struct OpenResolver(pub(crate) Destinations);

/// The name resolves to no address that requests may go to.
#[derive(Debug, thiserror::Error)]
#[error("{name} resolves to no public address: add the host to outgoing.allow to permit others")]
pub(crate) struct NoneAllowed {
    pub(crate) name: String,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let destinations = self.0.clone();
        let looked_up = destinations.lookup.lookup(name.as_str());
        Box::pin(async move {
            let found = looked_up.await?;
            let allowed: Vec<IpAddr> =
                found.into_iter().filter(|address| destinations.allows_address(*address)).collect();
            if allowed.is_empty() {
                let name = name.as_str().to_owned();
                return Err(NoneAllowed { name }.into());
            }
            Ok(sockets(allowed))
        })
    }
}

impl Resolve for OpenResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let looked_up = self.0.lookup.lookup(name.as_str());
        Box::pin(async move { Ok(sockets(looked_up.await?)) })
    }
}

/// The port is that of the URL.
fn sockets(addresses: Vec<IpAddr>) -> Addrs {
    Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)))
}
