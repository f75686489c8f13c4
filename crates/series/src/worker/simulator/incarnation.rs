//! One run of the simulated process, between two losses of power.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use egret_base::SeededEntropy;
use egret_blocks::block::BlockCache;
use egret_blocks::catalog::Catalog;
use egret_blocks::core::window::FlushSchedule;
use egret_log::simulated::{Fault, SimulatedDisk};
use egret_log::{FileLog, Housekeeping, Inbox, InboxLimits, LogConfig, Seq};
use egret_metrics_model::{LabelMatcher, MatchOp, Matcher, SeriesSamples, TimeMs, TimeSpan};
use prometheus_client::registry::Registry;

use super::SETTLE_MS;
use super::expected::{SampleKey, Samples};
use crate::api::source::select;
use crate::core::index::Index;
use crate::core::record::Deletion;
use crate::core::series_keys::SeriesKeyTable;
use crate::error::SeriesError;
use crate::metrics::Metrics;
use crate::store::checkpoint::{Checkpoint, FlushWatermark};
use crate::worker::delete::Delete;
use crate::worker::flush::CoreRunner;
use crate::worker::recover::{replay, restore};
use crate::worker::shard::{Core, CoreFn, Shard, ShardShared, Submission};
use crate::worker::write_ack::WriteAck;

pub(super) struct Incarnation {
    pub shard: RefCell<Shard<FileLog<SimulatedDisk>>>,
    pub shared: Arc<ShardShared>,
    pub catalog: Arc<Catalog<SimulatedDisk>>,
    pub flush_watermark: FlushWatermark,
    pub flush_schedule: FlushSchedule,
    /// A deletion may have been begun and not finished.
    pub has_unfinished_deletion: bool,
    /// Goes wrong when the next deletion is in the log and not in blocks.
    pub fault_after_log: Option<Fault>,
}

impl Incarnation {
    pub(crate) fn start(
        disk: &SimulatedDisk,
        seed: u64,
        clock_ms: TimeMs,
    ) -> Result<Self, SeriesError> {
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
        let shared = Arc::new(ShardShared {
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
            has_duplicate_series: AtomicBool::new(false),
            failure: Default::default(),
        });
        let series_keys = Arc::new(std::sync::RwLock::new(SeriesKeyTable::new(seed)));
        let mut core = Core::new(shared.clone(), series_keys);
        let flush_watermark = checkpoint
            .as_ref()
            .map_or(FlushWatermark::EMPTY, |checkpoint| checkpoint.flush_watermark);
        if let Some(checkpoint) = checkpoint {
            restore(checkpoint, &mut core);
        }
        replay(&log, flush_watermark, &mut core)?;
        let metrics = Arc::new(Metrics::register(&mut Registry::default()));
        let incarnation = Self {
            shard: RefCell::new(Shard::new(core, log, metrics)),
            shared,
            catalog,
            flush_watermark,
            flush_schedule: FlushSchedule::new(clock_ms, SETTLE_MS),
            has_unfinished_deletion: false,
            fault_after_log: None,
        };
        incarnation.run_deletion(disk, |delete| delete.resume())?;
        Ok(incarnation)
    }

    pub(crate) fn process(&self, submission: Submission) -> Result<(), SeriesError> {
        let mut shard = self.shard.borrow_mut();
        shard.log.housekeep()?;
        shard.run_turn(&mut vec![submission])?;
        assert!(!shard.has_backlog(), "a turn does at least one bulk write");
        Ok(())
    }

    pub(crate) fn run_deletion(
        &self,
        disk: &SimulatedDisk,
        action: impl FnOnce(&Delete<'_, SimulatedDisk>) -> Result<(), SeriesError>,
    ) -> Result<(), SeriesError> {
        let run_on_core = |ask: CoreFn| self.process(Submission::Run(ask));
        let core_runners: [CoreRunner<'_>; 1] = [&run_on_core];
        let submit = |_: usize, deletion: Arc<Deletion>| {
            let (ticket, mut receiver) = WriteAck::new(1);
            self.process(Submission::Delete(deletion, ticket))?;
            let result = receiver.try_recv().expect("a turn tells");
            if let Some(fault) = self.fault_after_log {
                disk.inject(fault);
            }
            result.map(drop)
        };
        action(&Delete {
            core_runners: &core_runners,
            submit: &submit,
            catalog: &self.catalog,
            disk,
        })
    }

    /// All that is there.
    pub(crate) fn read_all_samples(&self) -> Result<Samples, SeriesError> {
        let matcher = Matcher { name: "__name__".into(), op: MatchOp::Equal, value: "m".into() };
        let matchers = [LabelMatcher::new(matcher)?];
        let shards = [self.shared.clone()];
        let span = TimeSpan::ALL;
        let selected = select(&shards, self.catalog.snapshot(), &matchers, span, &|_| Ok(()))?;
        let mut found = Samples::new();
        let mut samples = SeriesSamples::default();
        for index in 0..selected.series.len() {
            selected.samples(index, &mut samples)?;
            let number = selected.series[index].labels.get("n").parse();
            let series: u64 = number.expect("the label is a number");
            for (time_ms, value) in samples.times_ms.iter().zip(&samples.values) {
                let time_ms = *time_ms;
                let previous = found.insert(SampleKey { series, time_ms }, *value);
                assert!(previous.is_none(), "{series} at {time_ms} occurs twice");
            }
        }
        Ok(found)
    }
}
