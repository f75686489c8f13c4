//! What runs between two losses of power.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use egret_base::SeededEntropy;
use egret_log::simulated::{Fault, SimulatedDisk};
use egret_log::{FileLog, Housekeeping, Inbox, InboxLimits, LogConfig, Seq};
use prometheus_client::registry::Registry;

use super::SETTLE_MS;
use super::expected::Samples;
use crate::api::source::select;
use crate::core::block::window::Due;
use crate::core::index::Index;
use crate::core::known::Known;
use crate::core::promql::LabelMatcher;
use crate::core::record::Deletion;
use crate::error::SeriesError;
use crate::metrics::Metrics;
use crate::model::{MatchOp, Matcher, SeriesSamples, TimeMs};
use crate::store::block::BlockCache;
use crate::store::catalog::Catalog;
use crate::store::checkpoint::{Checkpoint, InBlocks};
use crate::worker::delete::Delete;
use crate::worker::flush::Perform;
use crate::worker::recover::{replay, restore};
use crate::worker::shard::{Ask, Core, Shard, Shared, Submission};
use crate::worker::ticket::Ticket;

/// See the module.
pub(super) struct Life {
    pub shard: RefCell<Shard<FileLog<SimulatedDisk>>>,
    pub shared: Arc<Shared>,
    pub catalog: Arc<Catalog<SimulatedDisk>>,
    pub in_blocks: InBlocks,
    pub due: Due,
    /// A deletion may have been begun and not finished.
    pub is_deleting: bool,
    /// Goes wrong when the next deletion is in the log and not in blocks.
    pub fault_after_log: Option<Fault>,
}

impl Life {
    pub fn begin(disk: &SimulatedDisk, seed: u64, clock_ms: TimeMs) -> Result<Self, SeriesError> {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let catalog = Arc::new(Catalog::open(disk.clone(), cache)?);
        let checkpoint = Checkpoint::read(disk)?;
        let config = LogConfig {
            segment_bytes: 64 << 10,
            first_segment_bytes: 64 << 10,
            batch_bytes_max: 32 << 10,
            spare_segments: 1,
            recycled_segments_max: 1,
            must_exist: checkpoint.is_some(),
            housekeeping: Housekeeping::Owner,
            ..LogConfig::default()
        };
        let entropy = Arc::new(SeededEntropy::new(seed));
        let (log, _) = FileLog::open_with(disk.clone(), config, Seq::FIRST, entropy)?;
        let shared = Arc::new(Shared {
            number: 0,
            inbox: Inbox::new(InboxLimits {
                items_name: "items",
                items_max: 1_000,
                bytes_name: "bytes",
                bytes_max: 1 << 20,
            }),
            index: Index::default(),
            head_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            has_twins: AtomicBool::new(false),
            failure: Default::default(),
        });
        let known = Arc::new(std::sync::RwLock::new(Known::new(seed)));
        let mut core = Core::new(shared.clone(), known);
        let in_blocks = checkpoint
            .as_ref()
            .map_or(InBlocks::NOTHING, |checkpoint| checkpoint.in_blocks);
        if let Some(checkpoint) = checkpoint {
            restore(checkpoint, &mut core);
        }
        replay(&log, in_blocks, &mut core)?;
        let metrics = Arc::new(Metrics::register(&mut Registry::default()));
        let life = Self {
            shard: RefCell::new(Shard::new(core, log, metrics)),
            shared,
            catalog,
            in_blocks,
            due: Due::new(clock_ms, SETTLE_MS),
            is_deleting: false,
            fault_after_log: None,
        };
        life.deleting(disk, |delete| delete.go_on())?;
        Ok(life)
    }

    pub fn turn(&self, submission: Submission) -> Result<(), SeriesError> {
        let mut shard = self.shard.borrow_mut();
        shard.log.housekeep()?;
        shard.turn(&mut vec![submission]).map_err(SeriesError::from)
    }

    pub fn deleting(
        &self,
        disk: &SimulatedDisk,
        work: impl FnOnce(&Delete<'_, SimulatedDisk>) -> Result<(), SeriesError>,
    ) -> Result<(), SeriesError> {
        let perform = |ask: Ask| self.turn(Submission::Ask(ask));
        let performs: [Perform<'_>; 1] = [&perform];
        let submit = |_: usize, deletion: Arc<Deletion>| {
            let (ticket, mut told) = Ticket::new(1);
            self.turn(Submission::Delete(deletion, ticket))?;
            let told = told.try_recv().expect("a turn tells");
            if let Some(fault) = self.fault_after_log {
                disk.inject(fault);
            }
            told.map(drop)
        };
        work(&Delete {
            performs: &performs,
            submit: &submit,
            catalog: &self.catalog,
            disk,
        })
    }

    /// All that is there.
    pub fn read(&self) -> Result<Samples, SeriesError> {
        let matcher = Matcher {
            name: "__name__".into(),
            op: MatchOp::Equal,
            value: "m".into(),
        };
        let matchers = [LabelMatcher::new(matcher)?];
        let shards = [self.shared.clone()];
        let span = (TimeMs::MIN, TimeMs::MAX);
        let selected = select(&shards, self.catalog.snapshot(), &matchers, span, &|_| {
            Ok(())
        })?;
        let mut all = Samples::new();
        let mut samples = SeriesSamples::default();
        for at in 0..selected.series.len() {
            selected.samples(at, &mut samples)?;
            let number = selected.series[at].labels.get("n").parse();
            let number: u64 = number.expect("the label is a number");
            for (time_ms, value) in samples.times_ms.iter().zip(&samples.values) {
                let twice = all.insert((number, *time_ms), *value);
                assert!(twice.is_none(), "{number} at {time_ms} is there twice");
            }
        }
        Ok(all)
    }
}
