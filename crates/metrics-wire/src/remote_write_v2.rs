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
use symbols::{COPY_BYTES, SHORT_BIT, Symbol};

pub use metadata::WrittenMetadataV2;

const REQUEST: &str = "Request";
const SERIES: &str = "TimeSeries";
const METADATA: &str = "Metadata";
const SYMBOL_KEY: u8 = 0x22;
const SERIES_KEY: u8 = 0x2a;
const REFERENCES_KEY: u8 = 0x0a;
const METADATA_KEY: u8 = 0x2a;

/// What a label of two such strings may touch.
const LABEL_ROOM_BYTES: usize = 2 * COPY_BYTES + 6;

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
    long_label: Vec<u8>,
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
    body: &'a [u8],
    symbols: &'m [Symbol],
    keys_bytes: &'m Cell<u64>,
    references: Cow<'a, [u8]>,
    fields: Message<'a>,
    /// Where it begins in the body.
    offset: usize,
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
            let symbol = match fields.rest().first_chunk() {
                Some([SERIES_KEY]) => {
                    fields.position += 1;
                    fields.read_delimited()?;
                    continue;
                }
                Some([SYMBOL_KEY]) => {
                    fields.position += 1;
                    fields.read_delimited()?
                }
                _ => match fields.read_field()? {
                    None => break,
                    Some(field) if field.number == 4 => field.as_message(REQUEST, REQUEST)?,
                    Some(field) if field.number == 5 => {
                        field.as_message(REQUEST, SERIES)?;
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
        let series = match self.fields.rest().first() {
            Some(&SERIES_KEY) => {
                self.fields.position += 1;
                self.fields.read_delimited()?.with_name(SERIES)
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
        while let Some(field) = self.fields.read_field()? {
            if field.number == 5 {
                return field.as_message(REQUEST, SERIES).map(Some);
            }
        }
        Ok(None)
    }
}

impl<'a, 'm> WrittenSeriesV2<'a, 'm> {
    #[inline(always)]
    fn new(mut fields: Message<'a>, request: &WriteRequestV2<'a, 'm>) -> Result<Self, WireError> {
        let offset = fields.position;
        let mut references = Cow::Borrowed(&[][..]);
        if fields.rest().first() == Some(&REFERENCES_KEY) {
            fields.position += 1;
            references = Cow::Borrowed(fields.read_delimited()?.rest());
        }
        let mut series = Self {
            body: fields.body,
            symbols: request.symbols,
            keys_bytes: request.keys_bytes,
            references,
            fields,
            offset,
            has_histograms: false,
            metadata: None,
            created_ms: 0,
            exemplars: 0,
        };
        // What all known senders write: samples, then metadata or nothing.
        skip_samples(&mut fields)?;
        let samples_end = fields.position;
        if fields.rest().first() == Some(&METADATA_KEY) {
            fields.position += 1;
            series.metadata = Some(fields.read_delimited()?.with_name(METADATA));
        }
        if fields.is_empty() {
            series.fields.end = samples_end
        } else {
            series.scan_fields()?
        }
        Ok(series)
    }

    #[cold]
    #[inline(never)]
    fn scan_fields(&mut self) -> Result<(), WireError> {
        let mut fields = self.fields;
        loop {
            skip_samples(&mut fields)?;
            let Some(field) = fields.read_field()? else {
                return Ok(());
            };
            match field.number {
                1 => {
                    let references = self.references.to_mut();
                    field.for_each_varint(SERIES, |word| put_varint(references, word))?;
                }
                2 => drop(field.as_message(SERIES, "Sample")?),
                3 => {
                    field.as_message(SERIES, "Histogram")?;
                    self.has_histograms = true;
                }
                4 => {
                    self.check_exemplar(field.as_message(SERIES, "Exemplar")?)?;
                    self.exemplars += 1;
                }
                5 => self.metadata = Some(field.as_message(SERIES, METADATA)?),
                6 => self.created_ms = field.as_varint(SERIES)? as i64,
                _ => {}
            }
        }
    }

    fn check_exemplar(&self, mut exemplar: Message<'_>) -> Result<(), WireError> {
        const EXEMPLAR: &str = "Exemplar";
        let offset = exemplar.position;
        let mut references = 0;
        while let Some(field) = exemplar.read_field()? {
            match field.number {
                1 => {
                    let mut out_of_range = None;
                    field.for_each_varint(EXEMPLAR, |word| {
                        references += 1;
                        if word >= self.symbols.len() as u64 {
                            out_of_range = Some(word);
                        }
                    })?;
                    if let Some(reference) = out_of_range {
                        return Err(self.bad_reference_error(EXEMPLAR, reference, offset));
                    }
                }
                2 => drop(field.as_double(EXEMPLAR)?),
                3 => drop(field.as_varint(EXEMPLAR)?),
                _ => {}
            }
        }
        match references % 2 {
            0 => Ok(()),
            _ => Err(WireError::OddReferences { message: EXEMPLAR, at: offset }),
        }
    }

    #[cold]
    fn bad_reference_error(&self, message: &'static str, reference: u64, at: usize) -> WireError {
        WireError::BadReference { message, reference, symbols: self.symbols.len(), at }
    }

    fn symbol_text(&self, reference: u64) -> Result<&'a str, WireError> {
        match self.symbols.get(reference as usize) {
            Some(symbol) => symbol.text(self.body),
            None => Err(self.bad_reference_error(SERIES, reference, self.offset)),
        }
    }

    /// Its samples in the order of the wire.
    #[inline]
    pub fn samples(&self) -> SampleFields<'a> {
        SampleFields { fields: self.fields }
    }

    /// Its native histograms in the order of the wire.
    pub fn histograms(&self) -> HistogramFields<'a> {
        HistogramFields { fields: self.fields, field_number: 3 }
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
    pub fn build_key<'k>(&self, memory: &'k mut KeyMemory) -> Result<&'k [u8], WireError> {
        let references = &*self.references;
        let (mut position, mut key_len) = (0, 0);
        while position < references.len() {
            let (name, value_position) = read_reference(references, position);
            let (value, next_position) = read_reference(references, value_position);
            let symbols = (self.symbols.get(name), self.symbols.get(value));
            let (Some(&name), Some(&value)) = symbols else {
                return Err(self.count_failed_key(key_len, self.find_reference_error(position)));
            };
            position = next_position;
            key_len = self.append_label(name, value, memory, key_len);
            if key_len as u64 > KEY_BYTES_MAX.max {
                return Err(self.key_too_large_error(key_len));
            }
        }
        self.count_key_bytes(key_len)?;
        Ok(&memory.key[..key_len])
    }

    /// Counts a key of so many bytes.
    #[inline]
    fn count_key_bytes(&self, bytes: usize) -> Result<(), WireError> {
        let spent = self.keys_bytes.get() + bytes as u64;
        REQUEST_KEYS_BYTES_MAX.check(spent)?;
        self.keys_bytes.set(spent);
        Ok(())
    }

    #[cold]
    fn key_too_large_error(&self, bytes: usize) -> WireError {
        let Limit { name, max } = KEY_BYTES_MAX;
        let asked = bytes as u64;
        self.count_failed_key(bytes, LimitExceeded { name, max, asked }.into())
    }

    /// Why there is no key; the bytes that were written of it count all the same.
    #[cold]
    fn count_failed_key(&self, bytes: usize, error: WireError) -> WireError {
        self.count_key_bytes(bytes).err().unwrap_or(error)
    }

    /// What is wrong with the two references at `from`.
    #[cold]
    fn find_reference_error(&self, position: usize) -> WireError {
        let (message, at) = (SERIES, self.offset);
        let mut references = Message::new(&self.references, SERIES);
        references.position = position;
        for index in 0..2 {
            if index > 0 && references.is_empty() {
                return WireError::OddReferences { message, at };
            }
            match references.read_varint() {
                Ok(reference) if reference < self.symbols.len() as u64 => {}
                Ok(reference) => return self.bad_reference_error(SERIES, reference, at),
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
        offset: usize,
    ) -> usize {
        let window = |symbol: Symbol| -> Option<&[u8; COPY_BYTES]> {
            self.body.get(symbol.offset()..)?.first_chunk()
        };
        if name.0 & value.0 & SHORT_BIT != 0
            && let Some(name_window) = window(name)
            && let Some(value_window) = window(value)
            && let Some(target) = memory
                .key
                .get_mut(offset..)
                .and_then(|rest| rest.first_chunk_mut::<LABEL_ROOM_BYTES>())
        {
            // They are at most that long; to say so spares a check of each access below.
            let name_bytes = name.length().min(COPY_BYTES);
            let value_bytes = value.length().min(COPY_BYTES);
            target[0] = LABEL_KEY;
            target[1] = (name_bytes + value_bytes + 4) as u8;
            target[2] = NAME_KEY;
            target[3] = name_bytes as u8;
            target[4..4 + COPY_BYTES].copy_from_slice(name_window);
            let value_offset = 4 + name_bytes;
            target[value_offset] = VALUE_KEY;
            target[value_offset + 1] = value_bytes as u8;
            target[value_offset + 2..value_offset + 2 + COPY_BYTES].copy_from_slice(value_window);
            return offset + value_offset + 2 + value_bytes;
        }
        self.append_long_label(name, value, memory, offset)
    }

    /// Also what makes room for those that are not long.
    #[cold]
    #[inline(never)]
    fn append_long_label(
        &self,
        name: Symbol,
        value: Symbol,
        memory: &mut KeyMemory,
        offset: usize,
    ) -> usize {
        let KeyMemory { key, long_label: long } = memory;
        long.clear();
        append_label_bytes(name.bytes(self.body), value.bytes(self.body), long);
        let end = offset + long.len();
        if key.len() < end + LABEL_ROOM_BYTES {
            key.resize(end + LABEL_ROOM_BYTES, 0);
        }
        key[offset..end].copy_from_slice(long);
        end
    }
}

/// The reference at `from`, most of which are below 2^14, and where the next is; one that cannot be
/// read is beyond every table.
#[inline(always)]
fn read_reference(references: &[u8], position: usize) -> (usize, usize) {
    match references.get(position) {
        Some(first @ 0..0x80) => (usize::from(*first), position + 1),
        Some(first) => match references.get(position + 1) {
            Some(second @ 0..0x80) => {
                let low = usize::from(first & 0x7f);
                (low | usize::from(*second) << 7, position + 2)
            }
            _ => read_long_reference(references, position),
        },
        None => (usize::MAX, position),
    }
}

#[inline(never)]
fn read_long_reference(references: &[u8], position: usize) -> (usize, usize) {
    let mut message = Message::new(references, SERIES);
    message.position = position;
    match message.read_varint() {
        Ok(reference) => (reference as usize, message.position),
        Err(_) => (usize::MAX, position),
    }
}

#[cfg(test)]
mod tests;
