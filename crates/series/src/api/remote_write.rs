//! Reads requests of remote write: finds their series and sorts samples by shard.

use std::sync::Arc;
use std::time::Instant;

use egret_base::sync::lock;
use egret_metrics_wire::histogram::HistogramFields;
use egret_metrics_wire::remote_write_v1::{self, RequestEntry, WriteRequest};
use egret_metrics_wire::remote_write_v2::{KeyMemory, WriteRequestV2};
use egret_metrics_wire::{SampleFields, WireError, WireHistogram, WireSample};

use super::ingest_batch::{SampleTarget, ShardedBatch};
use super::metadata::MetadataBatch;
use super::write::Duplicates;
use crate::core::replicas::ElectionResult;
use crate::core::series_keys::{KeyId, SeriesKeyTable};
use crate::engine::{Buffers, EngineInner};
use crate::error::SeriesError;
use crate::metrics::Component;
use crate::store::ha_tracker::{HaDecision, HaTracker};

/// Result of reading a request.
#[expect(clippy::large_enum_variant, reason = "moved twice per request")]
pub(super) enum ReadResult {
    Batch(ShardedBatch),
    Duplicates(Duplicates),
}

/// Sets of buffers that are kept.
const POOLED_BUFFERS_MAX: usize = 16;

/// Memory for decompression that is kept in each.
const POOLED_BUFFER_BYTES_MAX: usize = 8 << 20;

/// Series that are looked up before others may change what is known.
const LOOKUPS_PER_LOCK: usize = 256;

impl Duplicates {
    fn count(
        &mut self,
        samples: SampleFields<'_>,
        mut histograms: HistogramFields<'_>,
    ) -> Result<(), WireError> {
        for sample in samples {
            sample?;
            self.samples += 1;
        }
        let mut wire_histogram = WireHistogram::default();
        loop {
            match histograms.read(&mut wire_histogram) {
                Ok(false) => return Ok(()),
                Err(error) if !error.is_series_error() => return Err(error),
                // It is dropped, whatever else is wrong with it.
                Ok(true) | Err(_) => {
                    self.samples += 1;
                    self.histograms += 1;
                }
            }
        }
    }
}

impl EngineInner {
    pub(super) fn read_compressed(
        &self,
        body: &[u8],
        read_body: fn(&Self, &[u8], &mut Buffers) -> Result<ReadResult, SeriesError>,
    ) -> Result<ReadResult, SeriesError> {
        let mut buffers = lock(&self.buffers).pop().unwrap_or_default();
        let mut snappy = std::mem::take(&mut buffers.snappy);
        let began = Instant::now();
        let decoded = snappy.decode(body, self.config.decoded_bytes_max.bytes());
        let result = decoded.map_err(SeriesError::from).and_then(|decoded| {
            let decompressed_at = Instant::now();
            self.metrics.observe_duration(Component::Decompress, decompressed_at - began);
            let gather =
                read_body(self, decoded, &mut buffers).and_then(|read| self.record_sender(read));
            self.metrics.observe_duration(Component::Resolve, decompressed_at.elapsed());
            gather
        });
        snappy.shrink(POOLED_BUFFER_BYTES_MAX);
        buffers.snappy = snappy;
        let mut pool = lock(&self.buffers);
        if pool.len() < POOLED_BUFFERS_MAX {
            pool.push(buffers);
        }
        result
    }

    pub(super) fn read_v1(&self, body: &[u8], _: &mut Buffers) -> Result<ReadResult, SeriesError> {
        let mut batch = self.new_batch()?;
        if let Some(ha_tracker) = self.ha_tracker.get()
            && !self.accepts_v1(ha_tracker, body, &mut batch)?
        {
            let mut duplicates = Duplicates::default();
            let mut request = WriteRequest::new(body);
            while let Some(series) = next_series_v1(&mut request)? {
                duplicates.count(series.samples(), series.histograms())?;
            }
            return Ok(ReadResult::Duplicates(duplicates));
        }
        let mut request = WriteRequest::new(body);
        let mut metadata_batch = MetadataBatch::default();
        let mut last_key: Option<KeyId> = None;
        'request: loop {
            let keys = self.read_series_keys();
            for _ in 0..LOOKUPS_PER_LOCK {
                let predicted = last_key.and_then(|last| keys.successor(last));
                if let Some((id, key)) = predicted
                    && let Some(series) = request.next_if_labels(key)?
                {
                    let target = batch.known_target(&keys, id, key)?;
                    add_series_v1(&mut batch, target, &series)?;
                    last_key = Some(id);
                    continue;
                }
                let series = match request.next()? {
                    None => break 'request,
                    Some(RequestEntry::Metadata(metadata)) => {
                        metadata_batch.push(&metadata);
                        continue;
                    }
                    Some(RequestEntry::Series(series)) => series,
                };
                let (target, key_id) = find_target(&mut batch, &keys, &series.labels, last_key)?;
                add_series_v1(&mut batch, target, &series)?;
                last_key = key_id;
            }
            if metadata_batch.is_full() {
                self.store_metadata(&mut metadata_batch);
            }
        }
        self.store_metadata(&mut metadata_batch);
        Ok(ReadResult::Batch(batch))
    }

    pub(super) fn read_v2(
        &self,
        body: &[u8],
        buffers: &mut Buffers,
    ) -> Result<ReadResult, SeriesError> {
        let mut batch = self.new_batch()?;
        let Buffers { symbols, key, .. } = buffers;
        if let Some(ha_tracker) = self.ha_tracker.get()
            && !self.accepts_v2(ha_tracker, WriteRequestV2::new(body, symbols)?, key, &mut batch)?
        {
            let mut duplicates = Duplicates::default();
            let mut request = WriteRequestV2::new(body, symbols)?;
            while let Some(series) = request.next()? {
                duplicates.count(series.samples(), series.histograms())?;
            }
            return Ok(ReadResult::Duplicates(duplicates));
        }
        let mut request = WriteRequestV2::new(body, symbols)?;
        let mut metadata_batch = MetadataBatch::default();
        let mut last_key: Option<KeyId> = None;
        'request: loop {
            let keys = self.read_series_keys();
            for _ in 0..LOOKUPS_PER_LOCK {
                let Some(series) = request.next()? else {
                    break 'request;
                };
                let predicted = last_key.and_then(|last| keys.successor(last));
                let target = match predicted {
                    Some((id, predicted)) if series.has_key(predicted)? => {
                        last_key = Some(id);
                        batch.known_target(&keys, id, predicted)?
                    }
                    _ => match series.build_key(key) {
                        Ok(key) => {
                            let (target, key_id) = find_target(&mut batch, &keys, key, last_key)?;
                            last_key = key_id;
                            target
                        }
                        Err(error) => {
                            batch.reject_or_fail(0, error)?;
                            SampleTarget::Refused
                        }
                    },
                };
                for sample in series.samples() {
                    let WireSample { time_ms, value } = sample?;
                    batch.add_sample(target, time_ms, value);
                }
                if series.has_histograms() {
                    add_histograms(&mut batch, target, series.histograms())?;
                }
                if let Err(error) = metadata_batch.push_from_series(&series) {
                    batch.reject_or_fail(0, error)?;
                }
            }
            if metadata_batch.is_full() {
                self.store_metadata(&mut metadata_batch);
            }
        }
        self.store_metadata(&mut metadata_batch);
        Ok(ReadResult::Batch(batch))
    }

    /// Whether a request is taken in, as the first of its series tells that can be read.
    fn accepts_v1(
        &self,
        ha_tracker: &HaTracker,
        body: &[u8],
        batch: &mut ShardedBatch,
    ) -> Result<bool, SeriesError> {
        let mut request = WriteRequest::new(body);
        while let Some(series) = next_series_v1(&mut request)? {
            if let Some(is_accepted) = self.accepts_labels(ha_tracker, &series.labels, batch)? {
                return Ok(is_accepted);
            }
        }
        Ok(true)
    }

    /// Like [`EngineInner::accepts_v1`], for remote write 2.0.
    fn accepts_v2(
        &self,
        ha_tracker: &HaTracker,
        mut request: WriteRequestV2<'_, '_>,
        key_memory: &mut KeyMemory,
        batch: &mut ShardedBatch,
    ) -> Result<bool, SeriesError> {
        while let Some(series) = request.next()? {
            let is_accepted = match series.build_key(key_memory) {
                Ok(key) => self.accepts_labels(ha_tracker, key, batch)?,
                Err(error) if error.is_series_error() => None,
                Err(error) => return Err(error.into()),
            };
            if let Some(listens) = is_accepted {
                return Ok(listens);
            }
        }
        Ok(true)
    }

    /// Whether a request is taken in of which a series has these label fields; nothing when they
    /// cannot be read, which is told when the series is gathered.
    fn accepts_labels(
        &self,
        ha_tracker: &HaTracker,
        labels: &[u8],
        batch: &mut ShardedBatch,
    ) -> Result<Option<bool>, SeriesError> {
        let sender = match ha_tracker.decide(labels, self.clock.monotonic()) {
            Ok(HaDecision::NotReplicated) => return Ok(Some(true)),
            Ok(HaDecision::Refused) => return Ok(Some(false)),
            Ok(HaDecision::Accepted(sender)) => sender,
            Err(SeriesError::Wire(error)) if error.is_series_error() => return Ok(None),
            Err(error) => return Err(error),
        };
        batch.sender = Some(sender);
        Ok(Some(true))
    }

    /// Notes the sender of a request that was read to its end. A malformed request neither keeps a
    /// replica elected nor elects one.
    fn record_sender(&self, result: ReadResult) -> Result<ReadResult, SeriesError> {
        let ReadResult::Batch(batch) = &result else {
            return Ok(result);
        };
        let (Some(ha_tracker), Some(sender)) = (self.ha_tracker.get(), &batch.sender) else {
            return Ok(result);
        };
        match ha_tracker.record_request(sender, self.clock.monotonic()) {
            ElectionResult::Accepted => {}
            ElectionResult::Elected { .. } => {
                self.metrics.elections.inc();
                ha_tracker.write_elected();
            }
            // Another was elected while this was read.
            ElectionResult::Refused => {
                return Ok(ReadResult::Duplicates(Duplicates {
                    samples: batch.samples,
                    histograms: batch.histograms,
                }));
            }
            ElectionResult::TooMany => return Err(ha_tracker.too_many_clusters_error()),
        }
        Ok(result)
    }
}

/// Where samples of a series go that is not the one which came next the last time, and which key it
/// has, if it is known.
#[inline]
fn find_target(
    batch: &mut ShardedBatch,
    keys: &SeriesKeyTable,
    key: &[u8],
    last_key: Option<KeyId>,
) -> Result<(SampleTarget, Option<KeyId>), WireError> {
    let Some(id) = keys.find(key) else {
        return Ok((batch.resolve_key(keys, key)?, None));
    };
    if let Some(last) = last_key {
        keys.set_successor(last, id);
    }
    Ok((batch.known_target(keys, id, key)?, Some(id)))
}

/// The next series, whatever metadata is before it.
fn next_series_v1<'a>(
    request: &mut WriteRequest<'a>,
) -> Result<Option<remote_write_v1::WrittenSeries<'a>>, WireError> {
    loop {
        match request.next()? {
            None => return Ok(None),
            Some(RequestEntry::Metadata(_)) => {}
            Some(RequestEntry::Series(series)) => return Ok(Some(series)),
        }
    }
}

#[inline]
fn add_series_v1(
    batch: &mut ShardedBatch,
    target: SampleTarget,
    series: &remote_write_v1::WrittenSeries<'_>,
) -> Result<(), WireError> {
    for sample in series.samples() {
        let WireSample { time_ms, value } = sample?;
        batch.add_sample(target, time_ms, value);
    }
    if series.has_histograms() {
        add_histograms(batch, target, series.histograms())?;
    }
    Ok(())
}

#[cold]
fn add_histograms(
    batch: &mut ShardedBatch,
    target: SampleTarget,
    mut histograms: HistogramFields<'_>,
) -> Result<(), WireError> {
    let mut wire_histogram = WireHistogram::default();
    loop {
        match histograms.read(&mut wire_histogram) {
            Ok(true) => {
                let histogram = Arc::new(wire_histogram.to_histogram());
                batch.add_histogram(target, wire_histogram.time_ms, histogram);
            }
            Ok(false) => return Ok(()),
            Err(error) => batch.reject_or_fail(1, error)?,
        }
    }
}
