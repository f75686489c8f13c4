//! The engine as a service: start, ready and stop, like every other engine's.

use std::sync::atomic::Ordering;

use egret_base::lifecycle::{BoxFuture, FailedPart, Readiness, Service, StartError};
use egret_base::sync::lock;

use super::Series;
use crate::engine::EngineInner;
use crate::error::SeriesError;

impl Service for Series {
    fn name(&self) -> &'static str {
        "series"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            let inner = self.inner.clone();
            let starting = tokio::task::spawn_blocking(move || EngineInner::start(&inner));
            let result = match starting.await {
                Ok(begun) => begun,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => Err(SeriesError::Stopping),
            };
            result.map_err(|error| StartError {
                service: "series",
                is_fatal: matches!(error, SeriesError::Invalid { .. }),
                message: egret_base::error::chain(&error),
            })
        })
    }

    fn ready(&self) -> Readiness {
        let not_ready = |reason: String| Readiness::NotReady(reason);
        let shards = match self.inner.shards() {
            Ok(shards) => shards,
            Err(error) => return not_ready(error.to_string()),
        };
        // While some run, the others are listed as failed parts.
        if shards.iter().all(|shard| shard.failure.get().is_some()) {
            return not_ready("no shard runs".to_owned());
        }
        if self.inner.upkeep_failed.load(Ordering::Acquire) {
            not_ready(SeriesError::UpkeepFailed.to_string())
        } else {
            Readiness::Ready
        }
    }

    fn failed_parts(&self) -> Vec<FailedPart> {
        let shards = self.inner.shards.get().into_iter().flatten();
        let mut failed: Vec<FailedPart> = shards
            .filter_map(|shard| {
                let failure = shard.failure.get()?;
                let number = shard.number;
                let remedy = if matches!(failure, SeriesError::ShardUnusable { .. }) {
                    format!("stop egret; `egret repair series/{number:03}` shows what can be saved")
                } else {
                    "check the disk, then restart egret".to_owned()
                };
                Some(FailedPart {
                    part: format!("series/{number:03}"),
                    reason: failure.to_string(),
                    remedy,
                })
            })
            .collect();
        let set_aside = self.inner.catalog.get().map(|catalog| catalog.quarantined());
        failed.extend(set_aside.into_iter().flatten().map(|block| FailedPart {
            part: format!("series/blocks/{}", block.name),
            reason: match block.reason {
                Some(reason) => format!("the block is damaged and was set aside: {reason}"),
                None => "the block is damaged and was set aside at an earlier start".to_owned(),
            },
            remedy: format!(
                "restore the block from a backup, or stop egret and move it away with `egret \
                 repair series/blocks/{}`",
                block.name
            ),
        }));
        failed
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.stopping.store(true, Ordering::Release);
            lock(&self.inner.job_sender).take();
            for shard in self.inner.shards.get().into_iter().flatten() {
                shard.inbox.close();
            }
            let threads = std::mem::take(&mut *lock(&self.inner.threads));
            let joining = tokio::task::spawn_blocking(move || {
                threads.into_iter().all(|thread| thread.join().is_ok())
            });
            if !joining.await.unwrap_or(false) {
                tracing::error!("a shard thread of the series panicked");
            }
        })
    }
}
