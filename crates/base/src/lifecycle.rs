//! The one contract by which everything long-lived starts, says that it is ready, and stops.
//!
//! Runtime-free: the futures are plain `std` futures, polled by the code that wires the services.

mod failed;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use failed::{FailedPart, Failures, hide_directory};

/// A boxed future, as the methods of [`Service`] return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a service could not start: the service's name and its error.
#[derive(Debug, thiserror::Error)]
#[error("{service} could not start: {message}")]
pub struct StartError {
    /// Name of the service.
    pub service: &'static str,
    /// What failed and what to do.
    pub message: String,
    /// Whether nothing else may start either: a setting cannot be used, a port or a lock is taken.
    pub is_fatal: bool,
}

/// Whether a service can do its work at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The service can do its work.
    Ready,
    /// It cannot; the text says why, for `/readyz`.
    NotReady(String),
    /// It could not start, and will not before Egret is started again; the text says why.
    Failed(String),
}

/// Something that is started once, can be asked whether it is ready, and is stopped once.
pub trait Service: Send + Sync {
    /// A short stable name such as `postgres` or `branches`.
    fn name(&self) -> &'static str;

    /// Starts the service and returns when it is ready for work.
    fn start(&self) -> BoxFuture<'_, Result<(), StartError>>;

    /// Whether it can do its work now; must not block.
    fn ready(&self) -> Readiness;

    /// The pieces of the service that do not work while the others do; must not block.
    fn failed_parts(&self) -> Vec<FailedPart> {
        Vec::new()
    }

    /// Stops the service and everything it started. Safe to call when it never started.
    fn stop(&self) -> BoxFuture<'_, ()>;
}

/// Services in the order of their dependencies: started first to last, stopped last to first.
///
/// *Eager* ones are started before all others: frontends that can already answer for what is ready.
/// They are stopped in their place like the rest, so that no request reaches a service that has
/// stopped.
#[derive(Default, Clone)]
pub struct Stack {
    services: Vec<StackEntry>,
    failures: Failures,
}

#[derive(Clone)]
struct StackEntry {
    service: Arc<dyn Service>,
    eager: bool,
    /// The service without which this one cannot start.
    dependency: Option<&'static str>,
}

impl Stack {
    /// A stack without services; those that cannot start are recorded in `failures`.
    pub fn with_failures(failures: Failures) -> Self {
        Self { services: Vec::new(), failures }
    }

    /// Adds a service that depends only on those added before it.
    pub fn push(&mut self, service: Arc<dyn Service>) {
        self.services.push(StackEntry { service, eager: false, dependency: None });
    }

    /// Adds a service that is not started when the service `dependency`, added before it, could not
    /// start.
    pub fn push_dependent(&mut self, service: Arc<dyn Service>, dependency: &'static str) {
        self.services.push(StackEntry { service, eager: false, dependency: Some(dependency) });
    }

    /// Adds a service that is started before those that are not eager, and stopped before those
    /// added before it.
    pub fn push_eager(&mut self, service: Arc<dyn Service>) {
        self.services.push(StackEntry { service, eager: true, dependency: None });
    }

    /// Adds a service like [`Stack::push_eager`] that is not started when `dependency` could
    /// not start.
    pub fn push_eager_dependent(&mut self, service: Arc<dyn Service>, dependency: &'static str) {
        self.services.push(StackEntry { service, eager: true, dependency: Some(dependency) });
    }

    /// Starts every service in order. One that fails is noted and the others go on, but for those
    /// that need it. A fatal failure stops again what had started.
    ///
    /// # Errors
    /// The first fatal [`StartError`].
    pub async fn start(&self) -> Result<(), StartError> {
        let indexes = 0..self.services.len();
        let (eager, others): (Vec<usize>, Vec<usize>) =
            indexes.partition(|place| self.services[*place].eager);
        let mut started: Vec<usize> = Vec::with_capacity(self.services.len());
        for index in eager.into_iter().chain(others) {
            let entry = &self.services[index];
            if self.failures.reason(entry.service.name()).is_some() {
                // A failure was recorded before the start.
                continue;
            }
            let missing = entry.dependency.filter(|needed| self.failures.reason(needed).is_some());
            if let Some(missing) = missing {
                let reason = format!("it needs {missing}, which could not start");
                self.failures.record(entry.service.name(), reason);
                continue;
            }
            match entry.service.start().await {
                Ok(()) => started.push(index),
                Err(error) if error.is_fatal => {
                    started.sort_unstable();
                    for place in started.into_iter().rev() {
                        self.services[place].service.stop().await;
                    }
                    return Err(error);
                }
                Err(error) => self.failures.record(error.service, error.message),
            }
        }
        Ok(())
    }

    /// The services that could not start.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// Everything that does not work: services that could not start, and pieces of those that did.
    pub fn failed_parts(&self) -> Vec<FailedPart> {
        let mut parts = self.failures.parts();
        for entry in &self.services {
            if self.failures.reason(entry.service.name()).is_none() {
                parts.extend(entry.service.failed_parts());
            }
        }
        parts
    }

    /// Stops every service in reverse order.
    pub async fn stop(&self) {
        self.stop_reporting(|_| {}).await;
    }

    /// Stops every service in reverse order and reports the name of each before it stops.
    pub async fn stop_reporting(&self, mut report: impl FnMut(&'static str)) {
        for entry in self.services.iter().rev() {
            report(entry.service.name());
            entry.service.stop().await;
        }
    }

    /// Each service's name with its readiness, in start order.
    pub fn readiness(&self) -> Vec<(&'static str, Readiness)> {
        self.services
            .iter()
            .map(|entry| {
                let name = entry.service.name();
                let readiness = match self.failures.reason(name) {
                    Some(reason) => Readiness::Failed(reason),
                    None => entry.service.ready(),
                };
                (name, readiness)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
