//! What runs: a thread a shard. Start, ready and stop, like every other engine's.

mod append;
pub(crate) mod delete;
mod fetch;
pub(crate) mod flush;
pub mod notify;
pub(crate) mod recover;
pub mod rules;
pub mod scrape;
pub(crate) mod shard;
#[cfg(test)]
mod simulator;
mod snapshot;
pub(crate) mod ticket;
pub(crate) mod upkeep;

pub use append::{Append, AppendError, Appended};
use append::{now_ms, timestamp, wait_until};
pub use snapshot::SnapshotOf;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use egret_base::durable;
use egret_base::lifecycle::{
    BoxFuture, FailedPart, Readiness, Service, StartError, hide_directory,
};
use egret_base::parts::{self, KNOWN_PARTS, KnownParts, PartsError};
use egret_log::{Directory, Durability, FileLog, Inbox, InboxLimits, LogConfig, LogError, Seq};

use crate::api::elections::Elections;
use crate::api::{Inner, Series, Threads, lock};
use crate::config::SeriesConfig;
use crate::core::block::plan::Policy;
use crate::core::block::window::Due;
use crate::core::index::Index;
use crate::core::policy::policy;
use crate::error::SeriesError;
use crate::store::block::BlockCache;
use crate::store::catalog::Catalog;
use crate::store::checkpoint::{Checkpoint, InBlocks};
use recover::{replay, restore};
use shard::{Core, Shard, Shared};
use upkeep::{Job, Kept, Upkeep};

/// Threads that one query may use at most.
const QUERY_THREADS_MAX: u32 = 256;

impl Service for Series {
    fn name(&self) -> &'static str {
        "series"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            let inner = self.inner.clone();
            let opened = tokio::task::spawn_blocking(move || Inner::begin(&inner));
            let begun = match opened.await {
                Ok(begun) => begun,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => Err(SeriesError::Stopping),
            };
            begun.map_err(|error| StartError {
                service: "series",
                is_fatal: matches!(error, SeriesError::Invalid { .. }),
                message: egret_base::error::chain(&error),
            })
        })
    }

    fn ready(&self) -> Readiness {
        let no = |reason: String| Readiness::NotReady(reason);
        let shards = match self.inner.shards() {
            Ok(shards) => shards,
            Err(error) => return no(error.to_string()),
        };
        // While some run, the others are listed as failed parts.
        if shards.iter().all(|shard| shard.failure.get().is_some()) {
            return no("no shard runs".to_owned());
        }
        match self.inner.upkeep_failed.load(Ordering::Acquire) {
            true => no(SeriesError::UpkeepFailed.to_string()),
            false => Readiness::Ready,
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
        let set_aside = self
            .inner
            .catalog
            .get()
            .map(|catalog| catalog.quarantined());
        failed.extend(set_aside.into_iter().flatten().map(|block| FailedPart {
            part: format!("series/blocks/{}", block.name),
            reason: match block.reason {
                Some(reason) => format!("the block is damaged and was set aside: {reason}"),
                None => "the block is damaged and was set aside at an earlier start".to_owned(),
            },
            remedy: format!(
                "restore the block from a backup, or stop egret and put it away with `egret repair series/blocks/{}`",
                block.name
            ),
        }));
        failed
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.stopping.store(true, Ordering::Release);
            lock(&self.inner.jobs).take();
            for shard in self.inner.shards.get().into_iter().flatten() {
                shard.inbox.close();
            }
            let threads = std::mem::take(&mut *lock(&self.inner.threads));
            let joined = tokio::task::spawn_blocking(move || {
                threads.into_iter().all(|thread| thread.join().is_ok())
            });
            if !joined.await.unwrap_or(false) {
                tracing::error!("a shard of the series ended badly");
            }
        })
    }
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> SeriesError {
    let path = path.to_owned();
    move |error| SeriesError::io(action, &path, error)
}

fn durability(config: &SeriesConfig) -> Result<Durability, SeriesError> {
    match config.durability.as_str() {
        "fsync" => Ok(Durability::Fsync),
        "interval" => Ok(Durability::Interval(config.sync_interval.duration())),
        "none" => Ok(Durability::None),
        other => Err(SeriesError::Invalid {
            what: "series.durability",
            reason: format!("`{other}` is not fsync, interval or none"),
        }),
    }
}

/// The shards by number, those that could be opened, and what their upkeep keeps of them.
#[derive(Default)]
struct Opened {
    shared: Vec<Arc<Shared>>,
    started: Vec<Shard<FileLog>>,
    kept: Vec<Kept>,
}

impl Inner {
    /// Opens every shard's log, replays it, and starts its thread.
    fn begin(self: &Arc<Self>) -> Result<(), SeriesError> {
        self.check_settings()?;
        durable::make_directory(&self.directory).map_err(io("making", &self.directory))?;
        let policy = self.policy()?;
        // Nobody starts an engine twice.
        let _ = self.keep_max_ms.set(policy.keep_max_ms());
        let now = self.clock.running();
        let elections = Elections::open(&self.config, self.directory.clone(), now)?;
        let catalog = Arc::new(self.open_catalog()?);
        let Opened {
            shared,
            started,
            kept,
        } = self.open_shards()?;
        for shard in started {
            let number = shard.core.shared.number;
            let thread = std::thread::Builder::new()
                .name(format!("series-{number}"))
                .spawn(move || {
                    if let Err(error) = shard.run() {
                        tracing::error!(%error, shard = number, "a shard of the series cannot go on");
                    }
                })
                .map_err(io("starting a thread for", &self.directory))?;
            lock(&self.threads).push(thread);
        }
        let root = Directory::open(&self.directory).map_err(io("opening", &self.directory))?;
        self.start_query_threads()?;
        let (jobs, to_do) = std::sync::mpsc::channel::<Job>();
        let upkeep = Upkeep::new(self.clone(), catalog.clone(), kept, root, policy, to_do);
        let inner = self.clone();
        let thread = std::thread::Builder::new()
            .name("series-upkeep".to_owned())
            .spawn(move || {
                // What a panic has left is not looked at any more.
                if catch_unwind(AssertUnwindSafe(|| upkeep.run())).is_err() {
                    inner.upkeep_failed.store(true, Ordering::Release);
                    let error = SeriesError::UpkeepFailed;
                    tracing::error!(%error, "nothing is written to blocks any more");
                }
            })
            .map_err(io("starting a thread for", &self.directory))?;
        lock(&self.threads).push(thread);
        *lock(&self.jobs) = Some(jobs);
        let is_first = elections.is_none_or(|all| self.elections.set(all).is_ok())
            && self.catalog.set(catalog).is_ok()
            && self.shards.set(shared).is_ok();
        is_first.then_some(()).ok_or(SeriesError::Stopping)
    }

    /// Opens every shard's log and replays it. One that cannot be opened stops none of the others.
    fn open_shards(self: &Arc<Self>) -> Result<Opened, SeriesError> {
        let is_new = !self.directory.join("shards").exists();
        let count = self.shard_count()?;
        let known = KnownParts::read(&self.directory)
            .map_err(io("reading", &self.directory.join(KNOWN_PARTS)))?;
        let present = |number| self.directory.join(format!("{number:03}")).is_dir();
        // An earlier version made all shards at its first start.
        let all_existed = !is_new && known.was_absent() && (0..count).any(present);
        let end_of = |number: usize| {
            let end = known.number(&format!("{number:03}"));
            end.or(all_existed.then_some(0)).map(Seq)
        };
        let had_mark = |number: usize| {
            let name = parts::name_of_mark(&format!("{number:03}"));
            known.number(&name).is_some()
        };
        let opened: Vec<Result<(Shard<FileLog>, Kept), SeriesError>> =
            std::thread::scope(|scope| {
                let opening: Vec<_> = (0..count)
                    .map(|number| {
                        let (end, had_mark) = (end_of(number), had_mark(number));
                        scope.spawn(move || self.open_shard(number, count, end, had_mark))
                    })
                    .collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                    let joined = thread.join();
                    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                opening.into_iter().map(join).collect()
            });
        let mut all = Opened::default();
        for (number, opened) in opened.into_iter().enumerate() {
            match opened {
                Ok((shard, of_shard)) => {
                    all.shared.push(shard.core.shared.clone());
                    all.started.push(shard);
                    all.kept.push(of_shard);
                }
                Err(error) => all.shared.push(Arc::new(self.failed_shard(number, &error))),
            }
        }
        let noted = known.change(|known| {
            known.insert("shards".to_owned(), count as u64);
            for shard in &all.started {
                let name = format!("{:03}", shard.core.shared.number);
                if shard.log.has_end_mark() {
                    known.insert(parts::name_of_mark(&name), 1);
                }
                known.insert(name, shard.end().0);
            }
        });
        if let Err(error) = noted {
            tracing::warn!(%error, "it cannot be noted which shards of the series there are");
        }
        Ok(all)
    }

    /// Refuses settings with which the engine cannot run.
    pub fn check_settings(&self) -> Result<(), SeriesError> {
        durability(&self.config)?;
        self.policy().map(drop)
    }

    /// What others know of a shard that could not be opened: it takes nothing in and has no series.
    fn failed_shard(&self, number: usize, error: &SeriesError) -> Shared {
        let reason = egret_base::error::chain(error);
        let data_dir = self.directory.parent().unwrap_or(&self.directory);
        let failure = SeriesError::ShardUnusable {
            shard: number as u16,
            reason: hide_directory(&reason, data_dir),
        };
        tracing::error!(error = %failure, "a shard of the series does not start");
        let shared = self.shard(number, 1);
        shared.inbox.close();
        // The lock is new.
        let _ = shared.failure.set(failure);
        shared
    }

    fn shard(&self, number: usize, count: usize) -> Shared {
        Shared {
            number: number as u16,
            inbox: Inbox::new(InboxLimits {
                items_name: "series.waiting_max",
                items_max: self.config.waiting_max as usize,
                bytes_name: "series.waiting_bytes_max",
                bytes_max: self.config.waiting_bytes_max.bytes() as usize / count,
            }),
            index: Index::default(),
            head_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            has_twins: AtomicBool::new(false),
            failure: Default::default(),
        }
    }

    /// Whoever evaluates a query is one of its threads.
    fn start_query_threads(&self) -> Result<(), SeriesError> {
        let threads = match self.config.query_threads {
            0 => std::thread::available_parallelism().map_or(1, NonZero::get),
            threads if threads > QUERY_THREADS_MAX => {
                return Err(SeriesError::Invalid {
                    what: "series.query_threads",
                    reason: format!("{threads} is more than {QUERY_THREADS_MAX}"),
                });
            }
            threads => threads as usize,
        };
        if threads > 1 {
            let query_threads = Threads::start(threads - 1).map_err(std::io::Error::other);
            let query_threads =
                query_threads.map_err(io("starting threads for", &self.directory))?;
            // Nobody starts an engine twice.
            let _ = self.query_threads.set(query_threads);
        }
        Ok(())
    }

    fn policy(&self) -> Result<Policy, SeriesError> {
        let config = &self.config;
        let keep_ms = config.retention.duration().as_millis() as i64;
        let bytes_max = config.size_max.bytes();
        policy(
            &config.keep,
            &config.coarsen,
            (keep_ms > 0).then_some(keep_ms),
            (bytes_max > 0).then_some(bytes_max),
        )
        .map(|policy| Policy {
            settle_ms: config.settle.duration().as_millis() as i64,
            ..policy
        })
        .map_err(|(what, reason)| SeriesError::Invalid { what, reason })
    }

    fn open_catalog(&self) -> Result<Catalog<Directory>, SeriesError> {
        let path = self.directory.join("blocks");
        let disk = Directory::open(&path).map_err(io("opening", &path))?;
        let cache = Arc::new(BlockCache::counted(
            self.config.block_cache.bytes(),
            self.metrics.cache.clone(),
        ));
        let catalog = Catalog::open(disk, cache)?;
        for set_aside in catalog.quarantined() {
            tracing::error!(?set_aside, "a block of series is damaged and was set aside");
        }
        Ok(catalog)
    }

    /// How many shards there are: as many as when the data directory was made.
    fn shard_count(&self) -> Result<usize, SeriesError> {
        let asked = self.config.shards;
        parts::count(&self.directory, "shards", asked).map_err(|error| match error {
            PartsError::Invalid(reason) => SeriesError::Invalid {
                what: "series.shards",
                reason,
            },
            PartsError::Io {
                doing,
                path,
                source,
            } => io(doing, &path)(source),
        })
    }

    fn open_shard(
        &self,
        number: usize,
        count: usize,
        known_end: Option<Seq>,
        had_mark: bool,
    ) -> Result<(Shard<FileLog>, Kept), SeriesError> {
        let config = &self.config;
        let directory: PathBuf = self.directory.join(format!("{number:03}"));
        let log_directory = directory.join("log");
        if let Some(end) = known_end.filter(|_| !log_directory.is_dir()) {
            return Err(SeriesError::Log(LogError::Absent {
                place: log_directory.display().to_string(),
                replay_from: end,
            }));
        }
        durable::make_directory(&directory).map_err(io("making", &directory))?;
        parts::claim_place(&directory, &format!("series/{number:03}"))
            .map_err(io("reading", &directory))?;
        let checkpoints = Directory::open(&directory).map_err(io("opening", &directory))?;
        let checkpoint = Checkpoint::read(&checkpoints)?;
        let log_config = LogConfig {
            durability: durability(config)?,
            segment_bytes: config.segment_size.bytes(),
            must_exist: known_end.is_some() || checkpoint.is_some(),
            durable_below: known_end.unwrap_or_default(),
            mark_must_exist: had_mark,
            ..LogConfig::default()
        };
        let disk = Directory::open(&log_directory).map_err(io("opening", &log_directory))?;
        let (log, recovery) =
            FileLog::open_with(disk, log_config, Seq::FIRST, self.entropy.clone())?;
        if let Some(torn) = &recovery.torn {
            tracing::warn!(
                shard = number,
                ?torn,
                "the end of the log was not written whole and is cut"
            );
        }
        let shared = Arc::new(self.shard(number, count));
        let mut core = Core::new(shared, self.known.clone());
        let in_blocks = checkpoint
            .as_ref()
            .map_or(InBlocks::NOTHING, |checkpoint| checkpoint.in_blocks);
        if let Some(checkpoint) = checkpoint {
            restore(checkpoint, &mut core);
        }
        replay(&log, in_blocks, &mut core)?;
        let kept = Kept {
            shared: core.shared.clone(),
            disk: checkpoints,
            in_blocks,
            due: Due::new(self.now_ms(), config.settle.duration().as_millis() as i64),
            retry_at: None,
        };
        Ok((Shard::new(core, log, self.metrics.clone()), kept))
    }
}
