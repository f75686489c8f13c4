//! The one contract by which everything long-lived starts, says that it is ready, and stops.
//!
//! Runtime-free: the futures are plain `std` futures, polled by whoever wires the services.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A boxed future, as the methods of [`Service`] return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a service could not start: the service's name and its error.
#[derive(Debug, thiserror::Error)]
#[error("{service} could not start: {message}")]
pub struct StartError {
    /// The service's name.
    pub service: &'static str,
    /// What failed and what to do.
    pub message: String,
}

/// Whether a service can do its work at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It can.
    Ready,
    /// It cannot; the text says why, for `/readyz`.
    NotReady(String),
}

/// Something that is started once, can be asked whether it is ready, and is stopped once.
pub trait Service: Send + Sync {
    /// A short stable name such as `postgres` or `branches`.
    fn name(&self) -> &'static str;

    /// Starts the service and returns when it is ready for work.
    fn start(&self) -> BoxFuture<'_, Result<(), StartError>>;

    /// Whether it can do its work now; must not block.
    fn ready(&self) -> Readiness;

    /// Stops the service and everything it started. Safe to call when it never started.
    fn stop(&self) -> BoxFuture<'_, ()>;
}

/// Services in the order of their dependencies: started first to last, stopped last to first.
#[derive(Default, Clone)]
pub struct Stack {
    services: Vec<Arc<dyn Service>>,
}

impl Stack {
    /// Adds a service that depends only on those added before it.
    pub fn push(&mut self, service: Arc<dyn Service>) {
        self.services.push(service);
    }

    /// Starts every service in order. When one fails, those already started are stopped again.
    ///
    /// # Errors
    /// The first service's [`StartError`].
    pub async fn start(&self) -> Result<(), StartError> {
        for (position, service) in self.services.iter().enumerate() {
            if let Err(error) = service.start().await {
                for started in self.services[..position].iter().rev() {
                    started.stop().await;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stops every service in reverse order.
    pub async fn stop(&self) {
        self.stop_telling(|_| {}).await;
    }

    /// Stops every service in reverse order and tells the name of each before.
    pub async fn stop_telling(&self, mut stopping: impl FnMut(&'static str)) {
        for service in self.services.iter().rev() {
            stopping(service.name());
            service.stop().await;
        }
    }

    /// Each service's name with its readiness, in start order.
    pub fn readiness(&self) -> Vec<(&'static str, Readiness)> {
        self.services
            .iter()
            .map(|service| (service.name(), service.ready()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
