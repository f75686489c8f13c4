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
    Gather(ShardedBatch),
    Duplicates(Duplicates),
}

/// Sets of buffers that are kept.
const BUFFERS_MAX: usize = 16;

/// Memory for decompression that is kept in each.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// Series that are looked up before others may change what is known.
const LOOKUPS: usize = 256;

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
        let mut read = WireHistogram::default();
        loop {
            match histograms.read(&mut read) {
                Ok(false) => return Ok(()),
                Err(error) if !error.is_of_series() => return Err(error),
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
    pub(super) fn gather_compressed(
        &self,
        body: &[u8],
        read: fn(&Self, &[u8], &mut Buffers) -> Result<ReadResult, SeriesError>,
    ) -> Result<ReadResult, SeriesError> {
        let mut buffers = lock(&self.buffers).pop().unwrap_or_default();
        let mut snappy = std::mem::take(&mut buffers.snappy);
        let began = Instant::now();
        let decoded = snappy.decode(body, self.config.decoded_bytes_max.bytes());
        let gather = decoded.map_err(SeriesError::from).and_then(|decoded| {
            let decompressed = Instant::now();
            self.metrics
                .took(Component::Decompress, decompressed - began);
            let gather = read(self, decoded, &mut buffers).and_then(|read| self.heard(read));
            self.metrics
                .took(Component::Resolve, decompressed.elapsed());
            gather
        });
        snappy.shrink(BUFFER_BYTES_MAX);
        buffers.snappy = snappy;
        let mut kept = lock(&self.buffers);
        if kept.len() < BUFFERS_MAX {
            kept.push(buffers);
        }
        gather
    }

    pub(super) fn gather_v1(
        &self,
        body: &[u8],
        _: &mut Buffers,
    ) -> Result<ReadResult, SeriesError> {
        let mut gather = self.new_gather()?;
        if let Some(elections) = self.elections.get()
            && !self.listens_to_v1(elections, body, &mut gather)?
        {
            let mut duplicates = Duplicates::default();
            let mut request = WriteRequest::new(body);
            while let Some(series) = next_series_v1(&mut request)? {
                duplicates.count(series.samples(), series.histograms())?;
            }
            return Ok(ReadResult::Duplicates(duplicates));
        }
        let mut request = WriteRequest::new(body);
        let mut said = MetadataBatch::default();
        let mut last: Option<KeyId> = None;
        'request: loop {
            let known = self.known();
            for _ in 0..LOOKUPS {
                let predicted = last.and_then(|last| known.after(last));
                if let Some((id, key)) = predicted
                    && let Some(series) = request.next_if(key)?
                {
                    let target = gather.target(&known, id, key)?;
                    gather_series_v1(&mut gather, target, &series)?;
                    last = Some(id);
                    continue;
                }
                let series = match request.next()? {
                    None => break 'request,
                    Some(RequestEntry::Metadata(metadata)) => {
                        said.push(&metadata);
                        continue;
                    }
                    Some(RequestEntry::Series(series)) => series,
                };
                let (target, found) = look_up(&mut gather, &known, &series.labels, last)?;
                gather_series_v1(&mut gather, target, &series)?;
                last = found;
            }
            if said.is_full() {
                self.note(&mut said);
            }
        }
        self.note(&mut said);
        Ok(ReadResult::Gather(gather))
    }

    pub(super) fn gather_v2(
        &self,
        body: &[u8],
        buffers: &mut Buffers,
    ) -> Result<ReadResult, SeriesError> {
        let mut gather = self.new_gather()?;
        let Buffers { symbols, key, .. } = buffers;
        if let Some(elections) = self.elections.get()
            && !self.listens_to_v2(
                elections,
                WriteRequestV2::new(body, symbols)?,
                key,
                &mut gather,
            )?
        {
            let mut duplicates = Duplicates::default();
            let mut request = WriteRequestV2::new(body, symbols)?;
            while let Some(series) = request.next()? {
                duplicates.count(series.samples(), series.histograms())?;
            }
            return Ok(ReadResult::Duplicates(duplicates));
        }
        let mut request = WriteRequestV2::new(body, symbols)?;
        let mut said = MetadataBatch::default();
        let mut last: Option<KeyId> = None;
        'request: loop {
            let known = self.known();
            for _ in 0..LOOKUPS {
                let Some(series) = request.next()? else {
                    break 'request;
                };
                let predicted = last.and_then(|last| known.after(last));
                let target = match predicted {
                    Some((id, predicted)) if series.has_key(predicted)? => {
                        last = Some(id);
                        gather.target(&known, id, predicted)?
                    }
                    _ => match series.key(key) {
                        Ok(key) => {
                            let (target, found) = look_up(&mut gather, &known, key, last)?;
                            last = found;
                            target
                        }
                        Err(error) => {
                            gather.pass_over(0, error)?;
                            SampleTarget::Refused
                        }
                    },
                };
                for sample in series.samples() {
                    let WireSample { time_ms, value } = sample?;
                    gather.put(target, time_ms, value);
                }
                if series.has_histograms() {
                    gather_histograms(&mut gather, target, series.histograms())?;
                }
                if let Err(error) = said.push_of(&series) {
                    gather.pass_over(0, error)?;
                }
            }
            if said.is_full() {
                self.note(&mut said);
            }
        }
        self.note(&mut said);
        Ok(ReadResult::Gather(gather))
    }

    /// Whether a request is taken in, as the first of its series tells that can be read.
    fn listens_to_v1(
        &self,
        elections: &HaTracker,
        body: &[u8],
        gather: &mut ShardedBatch,
    ) -> Result<bool, SeriesError> {
        let mut request = WriteRequest::new(body);
        while let Some(series) = next_series_v1(&mut request)? {
            if let Some(listens) = self.listens_to(elections, &series.labels, gather)? {
                return Ok(listens);
            }
        }
        Ok(true)
    }

    /// Like [`EngineInner::listens_to_v1`], for remote write 2.0.
    fn listens_to_v2(
        &self,
        elections: &HaTracker,
        mut request: WriteRequestV2<'_, '_>,
        memory: &mut KeyMemory,
        gather: &mut ShardedBatch,
    ) -> Result<bool, SeriesError> {
        while let Some(series) = request.next()? {
            let listens = match series.key(memory) {
                Ok(key) => self.listens_to(elections, key, gather)?,
                Err(error) if error.is_of_series() => None,
                Err(error) => return Err(error.into()),
            };
            if let Some(listens) = listens {
                return Ok(listens);
            }
        }
        Ok(true)
    }

    /// Whether a request is taken in of which a series has these label fields; nothing when they
    /// cannot be read, which is told when the series is gathered.
    fn listens_to(
        &self,
        elections: &HaTracker,
        labels: &[u8],
        gather: &mut ShardedBatch,
    ) -> Result<Option<bool>, SeriesError> {
        let sender = match elections.judge(labels, self.clock.running()) {
            Ok(HaDecision::Plain) => return Ok(Some(true)),
            Ok(HaDecision::Refused) => return Ok(Some(false)),
            Ok(HaDecision::Accepted(sender)) => sender,
            Err(SeriesError::Wire(error)) if error.is_of_series() => return Ok(None),
            Err(error) => return Err(error),
        };
        gather.sender = Some(sender);
        Ok(Some(true))
    }

    /// Notes the sender of a request that was read to its end. A malformed request neither keeps a
    /// replica elected nor elects one.
    fn heard(&self, read: ReadResult) -> Result<ReadResult, SeriesError> {
        let ReadResult::Gather(gather) = &read else {
            return Ok(read);
        };
        let (Some(elections), Some(sender)) = (self.elections.get(), &gather.sender) else {
            return Ok(read);
        };
        match elections.hear(sender, self.clock.running()) {
            ElectionResult::Accepted => {}
            ElectionResult::Elected { .. } => {
                self.metrics.elections.inc();
                elections.remember();
            }
            // Another was elected while this was read.
            ElectionResult::Refused => {
                return Ok(ReadResult::Duplicates(Duplicates {
                    samples: gather.samples,
                    histograms: gather.histograms,
                }));
            }
            ElectionResult::TooMany => return Err(elections.too_many()),
        }
        Ok(read)
    }
}

/// Where samples of a series go that is not the one which came next the last time, and which key it
/// has, if it is known.
#[inline]
fn look_up(
    gather: &mut ShardedBatch,
    known: &SeriesKeyTable,
    key: &[u8],
    last: Option<KeyId>,
) -> Result<(SampleTarget, Option<KeyId>), WireError> {
    let Some(id) = known.find(key) else {
        return Ok((gather.unknown(known, key)?, None));
    };
    if let Some(last) = last {
        known.note_after(last, id);
    }
    Ok((gather.target(known, id, key)?, Some(id)))
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
fn gather_series_v1(
    gather: &mut ShardedBatch,
    target: SampleTarget,
    series: &remote_write_v1::WrittenSeries<'_>,
) -> Result<(), WireError> {
    for sample in series.samples() {
        let WireSample { time_ms, value } = sample?;
        gather.put(target, time_ms, value);
    }
    if series.has_histograms() {
        gather_histograms(gather, target, series.histograms())?;
    }
    Ok(())
}

#[cold]
fn gather_histograms(
    gather: &mut ShardedBatch,
    target: SampleTarget,
    mut histograms: HistogramFields<'_>,
) -> Result<(), WireError> {
    let mut read = WireHistogram::default();
    loop {
        match histograms.read(&mut read) {
            Ok(true) => {
                let histogram = Arc::new(read.to_histogram());
                gather.put_histogram(target, read.time_ms, histogram);
            }
            Ok(false) => return Ok(()),
            Err(error) => gather.pass_over(1, error)?,
        }
    }
}
