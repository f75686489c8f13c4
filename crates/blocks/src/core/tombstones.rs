//! Tombstones: deleted samples of a block that are still in its file.
//!
//! Bytes: for each tombstone its first and last time (signed) and the length and bytes of the list
//! of its series.

use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint, unzigzag, zigzag};
use egret_metrics_model::{SeriesSamples, TimeMs};
use roaring::RoaringBitmap;

use super::postings::{self, PostingsBuilder};

/// Deletion of the samples of some series in a span of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Tombstone {
    /// Numbers of the series within the block.
    pub series: RoaringBitmap,
    /// First deleted time, in ms.
    pub start_ms: TimeMs,
    /// Last deleted time, which is included.
    pub end_ms: TimeMs,
}

/// All tombstones of a block, in order of creation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tombstones(pub Vec<Tombstone>);

impl Tombstones {
    /// Encodes the tombstones to bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for tombstone in &self.0 {
            put_varint(&mut out, zigzag(tombstone.start_ms));
            put_varint(&mut out, zigzag(tombstone.end_ms));
            let mut list = PostingsBuilder::default();
            tombstone.series.iter().for_each(|series| list.push(series));
            put_bytes(&mut out, &list.finish());
        }
        out
    }

    /// Reads those of a block that has so many series.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub fn decode(bytes: &[u8], series: u32) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, "tombstones");
        let mut tombstones = Vec::new();
        while !reader.rest().is_empty() {
            let (start_ms, end_ms) = (unzigzag(reader.varint()?), unzigzag(reader.varint()?));
            let series = postings::decode(reader.bytes()?, series)?;
            tombstones.push(Tombstone { series, start_ms, end_ms });
        }
        Ok(Self(tombstones))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all samples of a series from first to last time are deleted.
    pub(crate) fn covers(&self, series: u32, first_ms: TimeMs, last_ms: TimeMs) -> bool {
        self.0.iter().any(|tombstone| {
            let is_around = tombstone.start_ms <= first_ms && tombstone.end_ms >= last_ms;
            is_around && tombstone.series.contains(series)
        })
    }

    /// Removes the deleted samples of a series, examining those from index `numbers_from` of
    /// numbers and `histograms_from` of histograms on.
    pub(crate) fn remove_deleted_samples(
        &self,
        series: u32,
        numbers_from: usize,
        histograms_from: usize,
        samples: &mut SeriesSamples,
    ) {
        for tombstone in self.0.iter().filter(|tombstone| tombstone.series.contains(series)) {
            let deleted_range = |times_ms: &[TimeMs], from: usize| {
                let times_ms = &times_ms[from..];
                let first = times_ms.partition_point(|time_ms| *time_ms < tombstone.start_ms);
                let end = times_ms.partition_point(|time_ms| *time_ms <= tombstone.end_ms);
                from + first..from + end.max(first)
            };
            let range = deleted_range(&samples.times_ms, numbers_from);
            samples.times_ms.drain(range.clone());
            samples.values.drain(range);
            let range = deleted_range(&samples.histogram_times_ms, histograms_from);
            samples.histogram_times_ms.drain(range.clone());
            samples.histograms.drain(range);
        }
    }
}
