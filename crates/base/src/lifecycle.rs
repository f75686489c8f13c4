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
///
/// *Eager* ones are started before all others: doors that can answer for what is there already. They are
/// stopped in their place like the rest, so that nobody is served by what has stopped.
#[derive(Default, Clone)]
pub struct Stack {
    services: Vec<Placed>,
}

#[derive(Clone)]
struct Placed {
    service: Arc<dyn Service>,
    eager: bool,
}

impl Stack {
    /// Adds a service that depends only on those added before it.
    pub fn push(&mut self, service: Arc<dyn Service>) {
        let eager = false;
        self.services.push(Placed { service, eager });
    }

    /// Adds a service that is started before those that are not eager, and stopped before those added
    /// before it.
    pub fn push_eager(&mut self, service: Arc<dyn Service>) {
        let eager = true;
        self.services.push(Placed { service, eager });
    }

    /// Starts every service in order. When one fails, those already started are stopped again.
    ///
    /// # Errors
    /// The first service's [`StartError`].
    pub async fn start(&self) -> Result<(), StartError> {
        let places = 0..self.services.len();
        let (eager, rest): (Vec<usize>, Vec<usize>) =
            places.partition(|place| self.services[*place].eager);
        let mut started: Vec<usize> = Vec::with_capacity(self.services.len());
        for place in eager.into_iter().chain(rest) {
            if let Err(error) = self.services[place].service.start().await {
                started.sort_unstable();
                for place in started.into_iter().rev() {
                    self.services[place].service.stop().await;
                }
                return Err(error);
            }
            started.push(place);
        }
        Ok(())
    }

    /// Stops every service in reverse order.
    pub async fn stop(&self) {
        self.stop_telling(|_| {}).await;
    }

    /// Stops every service in reverse order and tells the name of each before.
    pub async fn stop_telling(&self, mut stopping: impl FnMut(&'static str)) {
        for placed in self.services.iter().rev() {
            stopping(placed.service.name());
            placed.service.stop().await;
        }
    }

    /// Each service's name with its readiness, in start order.
    pub fn readiness(&self) -> Vec<(&'static str, Readiness)> {
        self.services
            .iter()
            .map(|placed| (placed.service.name(), placed.service.ready()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
