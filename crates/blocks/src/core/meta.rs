//! Metadata of a block: times, counts, sources.

use std::fmt;

use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint, unzigzag, zigzag};

use egret_metrics_model::TimeMs;

/// Which block. A higher one was made later; none is given twice in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u64);

impl fmt::Display for BlockId {
    /// As in the names of files: sixteen hexadecimal digits.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// What is in a block, and where it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockMeta {
    /// Id of the block.
    pub id: BlockId,
    /// The time of the earliest sample.
    pub min_ms: TimeMs,
    /// The time of the latest sample, which is included.
    pub max_ms: TimeMs,
    /// Number of series in the block.
    pub series: u64,
    /// Number of samples that are numbers.
    pub samples: u64,
    /// Number of native histograms.
    pub histograms: u64,
    /// How often its samples have been merged: 0 from the head, else one more than the highest of
    /// its sources.
    pub level: u32,
    /// The blocks that it was made of, ascending; none when it came from the head.
    pub sources: Vec<BlockId>,
    /// The rules that were applied to all of it, sorted: see `plan`.
    pub rules: Vec<Box<str>>,
}

impl BlockMeta {
    /// Encodes the metadata to bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.id.0);
        put_varint(&mut out, zigzag(self.min_ms));
        put_varint(&mut out, zigzag(self.max_ms));
        put_varint(&mut out, self.series);
        put_varint(&mut out, self.samples);
        put_varint(&mut out, self.histograms);
        put_varint(&mut out, self.level.into());
        put_varint(&mut out, self.sources.len() as u64);
        self.sources.iter().for_each(|source| put_varint(&mut out, source.0));
        put_varint(&mut out, self.rules.len() as u64);
        self.rules.iter().for_each(|rule| put_bytes(&mut out, rule.as_bytes()));
        out
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, "the meta of a block");
        let mut meta = Self {
            id: BlockId(reader.varint()?),
            min_ms: unzigzag(reader.varint()?),
            max_ms: unzigzag(reader.varint()?),
            series: reader.varint()?,
            samples: reader.varint()?,
            histograms: reader.varint()?,
            level: reader.varint_as()?,
            ..Self::default()
        };
        for _ in 0..reader.varint()? {
            meta.sources.push(BlockId(reader.varint()?));
        }
        for _ in 0..reader.varint()? {
            meta.rules.push(reader.text()?.into());
        }
        match reader.rest() {
            [] => Ok(meta),
            _ => Err(reader.malformed()),
        }
    }
}
