//! Requests of remote write are read: which series they are of, and what goes to which shard.

use std::sync::Arc;
use std::time::Instant;

use super::describe::Said;
use super::elections::{Elections, Judged};
use super::gather::{Gather, Target};
use super::write::Duplicates;
use super::{Inner, lock};
use crate::core::known::KeyId;
use crate::error::SeriesError;
use crate::metrics::Component;
use crate::wire::histogram::Histograms;
use crate::wire::remote_write_v1::{self, Entry, WriteRequest};
use crate::wire::remote_write_v2::{KeyMemory, Request, SymbolMemory};
use crate::wire::snappy::Snappy;
use crate::wire::{Sample, Samples, WireError, WireHistogram};

/// What was made of a request.
pub(super) enum Read {
    Gather(Gather),
    Duplicates(Duplicates),
}

/// Memory that a request needs while it is read.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    snappy: Snappy,
    symbols: SymbolMemory,
    key: KeyMemory,
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
        samples: Samples<'_>,
        mut histograms: Histograms<'_>,
    ) -> Result<(), WireError> {
        for sample in samples {
            sample?;
            self.samples += 1;
        }
        let mut read = WireHistogram::default();
        while histograms.read(&mut read)? {
            self.samples += 1;
            self.histograms += 1;
        }
        Ok(())
    }
}

impl Inner {
    pub(super) fn gather_compressed(
        &self,
        body: &[u8],
        read: fn(&Self, &[u8], &mut Buffers) -> Result<Read, SeriesError>,
    ) -> Result<Read, SeriesError> {
        let mut buffers = lock(&self.buffers).pop().unwrap_or_default();
        let mut snappy = std::mem::take(&mut buffers.snappy);
        let began = Instant::now();
        let decoded = snappy.decode(body, self.config.decoded_bytes_max.bytes());
        let gather = decoded.map_err(SeriesError::from).and_then(|decoded| {
            let decompressed = Instant::now();
            self.metrics
                .took(Component::Decompress, decompressed - began);
            let gather = read(self, decoded, &mut buffers);
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

    pub(super) fn gather_v1(&self, body: &[u8], _: &mut Buffers) -> Result<Read, SeriesError> {
        let mut gather = self.new_gather()?;
        if let Some(elections) = self.elections.get()
            && let Some(first) = next_series_v1(&mut WriteRequest::new(body))?
            && !self.is_listened_to(elections, &first.labels, &mut gather)?
        {
            let mut duplicates = Duplicates::default();
            let mut request = WriteRequest::new(body);
            while let Some(series) = next_series_v1(&mut request)? {
                duplicates.count(series.samples(), series.histograms())?;
            }
            return Ok(Read::Duplicates(duplicates));
        }
        let mut request = WriteRequest::new(body);
        let mut said = Said::default();
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
                    Some(Entry::Metadata(metadata)) => {
                        said.push(&metadata);
                        continue;
                    }
                    Some(Entry::Series(series)) => series,
                };
                let found = known.find(&series.labels);
                let target = match found {
                    Some(id) => gather.target(&known, id, &series.labels)?,
                    None => gather.unknown(&known, &series.labels)?,
                };
                gather_series_v1(&mut gather, target, &series)?;
                if let (Some(last), Some(id)) = (last, found) {
                    known.note_after(last, id);
                }
                last = found;
            }
            if said.is_full() {
                self.note(&mut said);
            }
        }
        self.note(&mut said);
        Ok(Read::Gather(gather))
    }

    pub(super) fn gather_v2(
        &self,
        body: &[u8],
        buffers: &mut Buffers,
    ) -> Result<Read, SeriesError> {
        let mut gather = self.new_gather()?;
        let Buffers { symbols, key, .. } = buffers;
        if let Some(elections) = self.elections.get()
            && let Some(first) = Request::new(body, symbols)?.next()?
            && !self.is_listened_to(elections, first.key(key)?, &mut gather)?
        {
            let mut duplicates = Duplicates::default();
            let mut request = Request::new(body, symbols)?;
            while let Some(series) = request.next()? {
                duplicates.count(series.samples(), series.histograms())?;
            }
            return Ok(Read::Duplicates(duplicates));
        }
        let mut request = Request::new(body, symbols)?;
        let mut said = Said::default();
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
                    _ => {
                        let key = series.key(key)?;
                        let found = known.find(key);
                        if let (Some(last), Some(id)) = (last, found) {
                            known.note_after(last, id);
                        }
                        last = found;
                        match found {
                            Some(id) => gather.target(&known, id, key)?,
                            None => gather.unknown(&known, key)?,
                        }
                    }
                };
                for sample in series.samples() {
                    let Sample { time_ms, value } = sample?;
                    gather.put(target, time_ms, value);
                }
                if series.has_histograms() {
                    gather_histograms(&mut gather, target, series.histograms())?;
                }
                said.push_of(&series)?;
            }
            if said.is_full() {
                self.note(&mut said);
            }
        }
        self.note(&mut said);
        Ok(Read::Gather(gather))
    }

    /// Whether a request is taken in whose first series has these label fields.
    fn is_listened_to(
        &self,
        elections: &Elections,
        first: &[u8],
        gather: &mut Gather,
    ) -> Result<bool, SeriesError> {
        let label = match elections.judge(first, self.clock.running())? {
            Judged::Plain => return Ok(true),
            Judged::Refused => return Ok(false),
            Judged::Accepted(label) => label,
            Judged::Elected(label) => {
                self.metrics.elections.inc();
                elections.remember();
                label
            }
        };
        gather.replica_label = Some(label);
        Ok(true)
    }
}

/// The next series, whatever metadata is before it.
fn next_series_v1<'a>(
    request: &mut WriteRequest<'a>,
) -> Result<Option<remote_write_v1::Series<'a>>, WireError> {
    loop {
        match request.next()? {
            None => return Ok(None),
            Some(Entry::Metadata(_)) => {}
            Some(Entry::Series(series)) => return Ok(Some(series)),
        }
    }
}

#[inline]
fn gather_series_v1(
    gather: &mut Gather,
    target: Target,
    series: &remote_write_v1::Series<'_>,
) -> Result<(), WireError> {
    for sample in series.samples() {
        let Sample { time_ms, value } = sample?;
        gather.put(target, time_ms, value);
    }
    if series.has_histograms() {
        gather_histograms(gather, target, series.histograms())?;
    }
    Ok(())
}

#[cold]
fn gather_histograms(
    gather: &mut Gather,
    target: Target,
    mut histograms: Histograms<'_>,
) -> Result<(), WireError> {
    let mut read = WireHistogram::default();
    while histograms.read(&mut read)? {
        let histogram = Arc::new(read.to_histogram());
        gather.put_histogram(target, read.time_ms, histogram);
    }
    Ok(())
}
