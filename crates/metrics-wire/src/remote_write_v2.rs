//! Remote write 2.0: `io.prometheus.write.v2.Request`.
//!
//! Strings are in a table of the request; series refer to it, and those of series that are known
//! were checked when they became known. References mean nothing in the next request, so that they
//! cannot be what a series is looked up by. [`WrittenSeriesV2::key`] writes the labels as remote
//! write 1.0 has them: the same bytes, hence the same table of known series and the same hash for
//! both versions, and an unknown series is read by the same function ([`super::labels::parse`]).
//! Which series comes is mostly known before: [`WrittenSeriesV2::has_key`] compares without writing
//! anything.
//!
//! When a counter began is read where the first drafts have it, in the series; later drafts have it
//! in each sample, where it is passed over.
//!
//! Specification: prometheus.io/docs/specs/prw/remote_write_spec_2_0.

mod compare;
mod metadata;
mod symbols;

use std::borrow::Cow;
use std::cell::Cell;

use egret_base::codec::put_varint;
use egret_base::limit::{Limit, LimitExceeded};

use super::error::WireError;
use super::histogram::HistogramFields;
use super::key_limit::KEY_BYTES_MAX;
use super::labels::{LABEL_KEY, NAME_KEY, VALUE_KEY, append_label_bytes};
use super::protobuf::Message;
use super::samples::{SampleFields, skip_samples};
use symbols::{COPY_BYTES, SHORT, Symbol};

pub use metadata::WrittenMetadataV2;

const REQUEST: &str = "Request";
const SERIES: &str = "TimeSeries";
const METADATA: &str = "Metadata";
const SYMBOL_KEY: u8 = 0x22;
const SERIES_KEY: u8 = 0x2a;
const REFERENCES_KEY: u8 = 0x0a;
const METADATA_KEY: u8 = 0x2a;

/// What a label of two such strings may touch.
const ROOM: usize = 2 * COPY_BYTES + 6;

/// The memory of a table of symbols, to be used again.
#[derive(Debug, Default)]
pub struct SymbolMemory {
    symbols: Vec<Symbol>,
    /// Bytes of keys written for the present request.
    keys_bytes: Cell<u64>,
}

/// Bytes that the keys of a request may take together. References are short and what they refer to
/// need not be: without this, a small body could ask for terabytes.
const REQUEST_KEYS_BYTES_MAX: Limit = Limit::new("request_keys_bytes_max", 1 << 30);

/// The memory of a key, to be used again; only as much of it counts as [`WrittenSeriesV2::key`]
/// gives back.
#[derive(Debug, Default)]
pub struct KeyMemory {
    key: Vec<u8>,
    /// A label of a long string, before it is copied: the key itself is never shortened, so that it
    /// is cleared once and not for every label.
    long: Vec<u8>,
}

/// A request that is being read.
#[derive(Debug)]
pub struct WriteRequestV2<'a, 'm> {
    fields: Message<'a>,
    symbols: &'m [Symbol],
    keys_bytes: &'m Cell<u64>,
}

/// A series of a request.
#[derive(Clone, Debug)]
pub struct WrittenSeriesV2<'a, 'm> {
    whole: &'a [u8],
    symbols: &'m [Symbol],
    keys_bytes: &'m Cell<u64>,
    references: Cow<'a, [u8]>,
    fields: Message<'a>,
    /// Where it begins in the body.
    at: usize,
    has_histograms: bool,
    metadata: Option<Message<'a>>,
    /// When its counter began, milliseconds since 1970; 0 where the sender does not say.
    pub created_ms: i64,
    /// Exemplars in it, which are checked and not kept.
    pub exemplars: u64,
}

impl<'a, 'm> WriteRequestV2<'a, 'm> {
    /// Reads the table of symbols of an uncompressed body and makes ready to read the series.
    ///
    /// # Errors
    /// [`WireError`] when the body is not made of fields.
    pub fn new(body: &'a [u8], memory: &'m mut SymbolMemory) -> Result<Self, WireError> {
        memory.symbols.clear();
        memory.keys_bytes.set(0);
        let mut fields = Message::new(body, REQUEST);
        // Series are walked over: nothing says that the table comes first.
        loop {
            let symbol = match fields.bytes().first_chunk() {
                Some([SERIES_KEY]) => {
                    fields.at += 1;
                    fields.delimited()?;
                    continue;
                }
                Some([SYMBOL_KEY]) => {
                    fields.at += 1;
                    fields.delimited()?
                }
                _ => match fields.field()? {
                    None => break,
                    Some(field) if field.number == 4 => field.message(REQUEST, REQUEST)?,
                    Some(field) if field.number == 5 => {
                        field.message(REQUEST, SERIES)?;
                        continue;
                    }
                    Some(_) => continue,
                },
            };
            memory.symbols.push(Symbol::new(symbol)?);
        }
        Ok(Self {
            fields: Message::new(body, REQUEST),
            symbols: &memory.symbols,
            keys_bytes: &memory.keys_bytes,
        })
    }

    /// Number of symbols of the request.
    pub fn symbols(&self) -> usize {
        self.symbols.len()
    }

    /// The next series; `None` at the end.
    ///
    /// # Errors
    /// [`WireError`] when it is not well formed. Nothing more can be read then.
    #[inline(always)]
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results goes on after an error"
    )]
    pub fn next(&mut self) -> Result<Option<WrittenSeriesV2<'a, 'm>>, WireError> {
        let series = match self.fields.bytes().first() {
            Some(&SERIES_KEY) => {
                self.fields.at += 1;
                self.fields.delimited()?.named(SERIES)
            }
            _ => match self.next_other()? {
                Some(series) => series,
                None => return Ok(None),
            },
        };
        WrittenSeriesV2::new(series, self).map(Some)
    }

    /// The next series after other fields, or with a key that is longer than it need be.
    #[cold]
    #[inline(never)]
    fn next_other(&mut self) -> Result<Option<Message<'a>>, WireError> {
        while let Some(field) = self.fields.field()? {
            if field.number == 5 {
                return field.message(REQUEST, SERIES).map(Some);
            }
        }
        Ok(None)
    }
}

impl<'a, 'm> WrittenSeriesV2<'a, 'm> {
    #[inline(always)]
    fn new(mut fields: Message<'a>, request: &WriteRequestV2<'a, 'm>) -> Result<Self, WireError> {
        let at = fields.at;
        let mut references = Cow::Borrowed(&[][..]);
        if fields.bytes().first() == Some(&REFERENCES_KEY) {
            fields.at += 1;
            references = Cow::Borrowed(fields.delimited()?.bytes());
        }
        let mut series = Self {
            whole: fields.whole,
            symbols: request.symbols,
            keys_bytes: request.keys_bytes,
            references,
            fields,
            at,
            has_histograms: false,
            metadata: None,
            created_ms: 0,
            exemplars: 0,
        };
        // What all known senders write: samples, then metadata or nothing.
        skip_samples(&mut fields)?;
        let samples_end = fields.at;
        if fields.bytes().first() == Some(&METADATA_KEY) {
            fields.at += 1;
            series.metadata = Some(fields.delimited()?.named(METADATA));
        }
        if fields.is_empty() {
            series.fields.end = samples_end
        } else {
            series.walk()?
        }
        Ok(series)
    }

    #[cold]
    #[inline(never)]
    fn walk(&mut self) -> Result<(), WireError> {
        let mut fields = self.fields;
        loop {
            skip_samples(&mut fields)?;
            let Some(field) = fields.field()? else {
                return Ok(());
            };
            match field.number {
                1 => {
                    let references = self.references.to_mut();
                    field.varints(SERIES, |word| put_varint(references, word))?;
                }
                2 => drop(field.message(SERIES, "Sample")?),
                3 => {
                    field.message(SERIES, "Histogram")?;
                    self.has_histograms = true;
                }
                4 => {
                    self.check_exemplar(field.message(SERIES, "Exemplar")?)?;
                    self.exemplars += 1;
                }
                5 => self.metadata = Some(field.message(SERIES, METADATA)?),
                6 => self.created_ms = field.varint(SERIES)? as i64,
                _ => {}
            }
        }
    }

    fn check_exemplar(&self, mut exemplar: Message<'_>) -> Result<(), WireError> {
        const EXEMPLAR: &str = "Exemplar";
        let at = exemplar.at;
        let mut references = 0;
        while let Some(field) = exemplar.field()? {
            match field.number {
                1 => {
                    let mut bad = None;
                    field.varints(EXEMPLAR, |word| {
                        references += 1;
                        if word >= self.symbols.len() as u64 {
                            bad = Some(word);
                        }
                    })?;
                    if let Some(reference) = bad {
                        return Err(self.bad_reference(EXEMPLAR, reference, at));
                    }
                }
                2 => drop(field.double(EXEMPLAR)?),
                3 => drop(field.varint(EXEMPLAR)?),
                _ => {}
            }
        }
        match references % 2 {
            0 => Ok(()),
            _ => Err(WireError::OddReferences {
                message: EXEMPLAR,
                at,
            }),
        }
    }

    #[cold]
    fn bad_reference(&self, message: &'static str, reference: u64, at: usize) -> WireError {
        WireError::BadReference {
            message,
            reference,
            symbols: self.symbols.len(),
            at,
        }
    }

    fn text(&self, reference: u64) -> Result<&'a str, WireError> {
        match self.symbols.get(reference as usize) {
            Some(symbol) => symbol.text(self.whole),
            None => Err(self.bad_reference(SERIES, reference, self.at)),
        }
    }

    /// Its samples in the order of the wire.
    #[inline]
    pub fn samples(&self) -> SampleFields<'a> {
        SampleFields {
            fields: self.fields,
        }
    }

    /// Its native histograms in the order of the wire.
    pub fn histograms(&self) -> HistogramFields<'a> {
        HistogramFields {
            fields: self.fields,
            field: 3,
        }
    }

    /// Whether it has native histograms.
    pub fn has_histograms(&self) -> bool {
        self.has_histograms
    }

    /// Its labels as remote write 1.0 has them; see [`super::labels::append_label_field`], with
    /// which this agrees byte for byte. Whether they are UTF-8 is not looked at.
    ///
    /// # Errors
    /// [`WireError`] when a reference is to no symbol, they are not in pairs, or this key or all
    /// keys of the request are too large. Other series can be read all the same.
    #[inline]
    pub fn key<'k>(&self, memory: &'k mut KeyMemory) -> Result<&'k [u8], WireError> {
        let references = &*self.references;
        let (mut from, mut at) = (0, 0);
        while from < references.len() {
            let (name, after) = reference(references, from);
            let (value, next) = reference(references, after);
            let symbols = (self.symbols.get(name), self.symbols.get(value));
            let (Some(&name), Some(&value)) = symbols else {
                return Err(self.unusable(at, self.reference_error(from)));
            };
            from = next;
            at = self.append_label(name, value, memory, at);
            if at as u64 > KEY_BYTES_MAX.max {
                return Err(self.too_large(at));
            }
        }
        self.spend(at)?;
        Ok(&memory.key[..at])
    }

    /// Counts a key of so many bytes.
    #[inline]
    fn spend(&self, bytes: usize) -> Result<(), WireError> {
        let spent = self.keys_bytes.get() + bytes as u64;
        REQUEST_KEYS_BYTES_MAX.check(spent)?;
        self.keys_bytes.set(spent);
        Ok(())
    }

    #[cold]
    fn too_large(&self, bytes: usize) -> WireError {
        let Limit { name, max } = KEY_BYTES_MAX;
        let asked = bytes as u64;
        self.unusable(bytes, LimitExceeded { name, max, asked }.into())
    }

    /// Why there is no key; the bytes that were written of it count all the same.
    #[cold]
    fn unusable(&self, bytes: usize, error: WireError) -> WireError {
        self.spend(bytes).err().unwrap_or(error)
    }

    /// What is wrong with the two references at `from`.
    #[cold]
    fn reference_error(&self, from: usize) -> WireError {
        let (message, at) = (SERIES, self.at);
        let mut references = Message::new(&self.references, SERIES);
        references.at = from;
        for index in 0..2 {
            if index > 0 && references.is_empty() {
                return WireError::OddReferences { message, at };
            }
            match references.varint() {
                Ok(reference) if reference < self.symbols.len() as u64 => {}
                Ok(reference) => return self.bad_reference(SERIES, reference, at),
                Err(WireError::VarintTooLong { .. }) => {
                    return WireError::VarintTooLong { message, at };
                }
                Err(_) => return WireError::Truncated { message, at },
            }
        }
        unreachable!("both references are to symbols")
    }

    /// Writes a label at `at`, beyond which `key` may hold anything, and says where it ends.
    #[inline(always)]
    fn append_label(
        &self,
        name: Symbol,
        value: Symbol,
        memory: &mut KeyMemory,
        at: usize,
    ) -> usize {
        let window = |symbol: Symbol| -> Option<&[u8; COPY_BYTES]> {
            self.whole.get(symbol.at()..)?.first_chunk()
        };
        if name.0 & value.0 & SHORT != 0
            && let Some(name_window) = window(name)
            && let Some(value_window) = window(value)
            && let Some(room) = memory
                .key
                .get_mut(at..)
                .and_then(|rest| rest.first_chunk_mut::<ROOM>())
        {
            // They are at most that long; to say so spares a check of each access below.
            let name_bytes = name.length().min(COPY_BYTES);
            let value_bytes = value.length().min(COPY_BYTES);
            room[0] = LABEL_KEY;
            room[1] = (name_bytes + value_bytes + 4) as u8;
            room[2] = NAME_KEY;
            room[3] = name_bytes as u8;
            room[4..4 + COPY_BYTES].copy_from_slice(name_window);
            let after = 4 + name_bytes;
            room[after] = VALUE_KEY;
            room[after + 1] = value_bytes as u8;
            room[after + 2..after + 2 + COPY_BYTES].copy_from_slice(value_window);
            return at + after + 2 + value_bytes;
        }
        self.append_long_label(name, value, memory, at)
    }

    /// Also what makes room for those that are not long.
    #[cold]
    #[inline(never)]
    fn append_long_label(
        &self,
        name: Symbol,
        value: Symbol,
        memory: &mut KeyMemory,
        at: usize,
    ) -> usize {
        let KeyMemory { key, long } = memory;
        long.clear();
        append_label_bytes(name.bytes(self.whole), value.bytes(self.whole), long);
        let end = at + long.len();
        if key.len() < end + ROOM {
            key.resize(end + ROOM, 0);
        }
        key[at..end].copy_from_slice(long);
        end
    }
}

/// The reference at `from`, most of which are below 2^14, and where the next is; one that cannot be
/// read is beyond every table.
#[inline(always)]
fn reference(references: &[u8], from: usize) -> (usize, usize) {
    match references.get(from) {
        Some(first @ 0..0x80) => (usize::from(*first), from + 1),
        Some(first) => match references.get(from + 1) {
            Some(second @ 0..0x80) => {
                let low = usize::from(first & 0x7f);
                (low | usize::from(*second) << 7, from + 2)
            }
            _ => long_reference(references, from),
        },
        None => (usize::MAX, from),
    }
}

#[inline(never)]
fn long_reference(references: &[u8], from: usize) -> (usize, usize) {
    let mut message = Message::new(references, SERIES);
    message.at = from;
    match message.varint() {
        Ok(reference) => (reference as usize, message.at),
        Err(_) => (usize::MAX, from),
    }
}

#[cfg(test)]
mod tests;
