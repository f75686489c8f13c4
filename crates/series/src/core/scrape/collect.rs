//! Metrics that are collected within the process, without HTTP.

use egret_base::lifecycle::BoxFuture;

/// Metrics of this program itself.
pub trait Exposition: Send + Sync {
    /// All of them, in Prometheus's text format.
    fn render(&self) -> String;
}

/// Metrics that have to be waited for.
pub trait Collect: Send + Sync {
    /// All of them, in Prometheus's text format; or why there are none, for people.
    fn collect(&self) -> BoxFuture<'_, Result<String, String>>;
}

impl<E: Exposition> Collect for E {
    fn collect(&self) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async { Ok(self.render()) })
    }
}
