//! Remote write 2.0: `io.prometheus.write.v2.Request`.
//!
//! Strings are in a table of the request, which is checked once; series refer to it. References mean nothing in
//! the next request, so that they cannot be what a series is looked up by. [`Series::key`] writes the
//! labels as remote write 1.0 has them: the same bytes, hence the same table of known series and the same hash
//! for both versions, and an unknown series is read by the same function ([`super::labels::parse`]). Writing
//! them is one fixed-size copy for a string of at most [`COPY_BYTES`] bytes, far less than hashing and comparing
//! cost anyway.
//!
//! Specification: prometheus.io/docs/specs/prw/remote_write_spec_2_0.

use std::borrow::Cow;

use super::MetricKind;
use super::error::WireError;
use super::histogram::Histograms;
use super::labels::{LABEL_KEY, append_label_field};
use super::protobuf::{Message, put_varint};
use super::samples::{Samples, is_single, skip_samples};

const REQUEST: &str = "Request";
const SERIES: &str = "TimeSeries";
const SYMBOL_KEY: u8 = 0x22;
const SERIES_KEY: u8 = 0x2a;
const REFERENCES_KEY: u8 = 0x0a;

/// Strings of at most so many bytes are copied without looking how long they are.
const COPY_BYTES: usize = 32;
/// What a label of two such strings may touch.
const ROOM: usize = 2 * COPY_BYTES + 6;

/// A string of the table: where it is in the body.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    at: u32,
    length: u32,
    /// Whether it is short, not empty, and as many bytes as are copied of short ones are there.
    is_short: bool,
}

/// The memory of a table of symbols, to be used again.
#[derive(Debug, Default)]
pub struct SymbolMemory(Vec<Symbol>);

/// The memory of a key, to be used again; only as much of it counts as [`Series::key`] gives back.
#[derive(Debug, Default)]
pub struct KeyMemory(Vec<u8>);

/// A request that is being read.
#[derive(Debug)]
pub struct Request<'a, 'm> {
    fields: Message<'a>,
    symbols: &'m [Symbol],
}

/// A series of a request.
#[derive(Clone, Debug)]
pub struct Series<'a, 'm> {
    whole: &'a [u8],
    symbols: &'m [Symbol],
    references: Cow<'a, [u8]>,
    fields: Message<'a>,
    /// Where it begins in the body.
    at: usize,
    has_histograms: bool,
    metadata: Option<Message<'a>>,
    /// When its counter began, milliseconds since 1970; 0 when nobody said.
    pub created_ms: i64,
    /// Exemplars in it, which are checked and not kept.
    pub exemplars: u64,
}

/// What a series says of its metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// What it is.
    pub kind: MetricKind,
    /// What it means.
    pub help: &'a str,
    /// What it is measured in.
    pub unit: &'a str,
}

impl<'a, 'm> Request<'a, 'm> {
    /// Reads the table of symbols of an uncompressed body and makes ready to read the series.
    ///
    /// # Errors
    /// [`WireError`] when the body is not made of fields, or a symbol is not UTF-8.
    pub fn new(body: &'a [u8], memory: &'m mut SymbolMemory) -> Result<Self, WireError> {
        memory.0.clear();
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
            memory.0.push(Symbol::new(symbol)?);
        }
        check_texts(body, &memory.0)?;
        Ok(Self {
            fields: Message::new(body, REQUEST),
            symbols: &memory.0,
        })
    }

    /// How many symbols it has.
    pub fn symbols(&self) -> usize {
        self.symbols.len()
    }

    /// The next series; `None` at the end.
    ///
    /// # Errors
    /// [`WireError`] when it is not well formed. Nothing more can be read then.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results goes on after an error"
    )]
    pub fn next(&mut self) -> Result<Option<Series<'a, 'm>>, WireError> {
        loop {
            if self.fields.bytes().first() == Some(&SERIES_KEY) {
                self.fields.at += 1;
                let series = self.fields.delimited()?.named(SERIES);
                return Series::new(series, self.symbols).map(Some);
            }
            let Some(field) = self.fields.field()? else {
                return Ok(None);
            };
            if field.number == 5 {
                let series = field.message(REQUEST, SERIES)?;
                return Series::new(series, self.symbols).map(Some);
            }
        }
    }
}

impl Symbol {
    #[inline(always)]
    fn new(message: Message<'_>) -> Result<Self, WireError> {
        let end = u32::try_from(message.end).map_err(|_| message.truncated())?;
        let at = message.at as u32;
        let length = end - at;
        let is_short = (1..=COPY_BYTES as u32).contains(&length)
            && message.at + COPY_BYTES <= message.whole.len();
        Ok(Self {
            at,
            length,
            is_short,
        })
    }
}

/// Keys and lengths below 128 are ASCII themselves: when all from the first symbol to the last is, all symbols are.
fn check_texts(body: &[u8], symbols: &[Symbol]) -> Result<(), WireError> {
    let (Some(first), Some(last)) = (symbols.first(), symbols.last()) else {
        return Ok(());
    };
    if body[first.at as usize..(last.at + last.length) as usize].is_ascii() {
        return Ok(());
    }
    for symbol in symbols {
        let mut message = Message::new(body, REQUEST);
        message.at = symbol.at as usize;
        message.end = message.at + symbol.length as usize;
        message.text()?;
    }
    Ok(())
}

impl<'a, 'm> Series<'a, 'm> {
    #[inline]
    fn new(mut fields: Message<'a>, symbols: &'m [Symbol]) -> Result<Self, WireError> {
        let at = fields.at;
        let mut references = Cow::Borrowed(&[][..]);
        if fields.bytes().first() == Some(&REFERENCES_KEY) {
            fields.at += 1;
            references = Cow::Borrowed(fields.delimited()?.bytes());
        }
        let mut series = Self {
            whole: fields.whole,
            symbols,
            references,
            fields,
            at,
            has_histograms: false,
            metadata: None,
            created_ms: 0,
            exemplars: 0,
        };
        if !is_single(&fields) {
            series.walk()?;
        }
        Ok(series)
    }

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
                    field.varints(SERIES, |word| put_varint(word, references))?;
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
                5 => self.metadata = Some(field.message(SERIES, "Metadata")?),
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

    #[inline(always)]
    fn symbol(&self, reference: u64) -> Result<Symbol, WireError> {
        let found = self.symbols.get(reference as usize);
        found
            .copied()
            .ok_or_else(|| self.bad_reference(SERIES, reference, self.at))
    }

    fn text(&self, reference: u64) -> Result<&'a str, WireError> {
        let symbol = self.symbol(reference)?;
        let from = symbol.at as usize;
        let part = &self.whole[from..from + symbol.length as usize];
        Ok(std::str::from_utf8(part).expect("the table was checked when it was read"))
    }

    /// Its samples in the order of the wire.
    #[inline]
    pub fn samples(&self) -> Samples<'a> {
        Samples {
            fields: self.fields,
        }
    }

    /// Its native histograms in the order of the wire.
    pub fn histograms(&self) -> Histograms<'a> {
        Histograms {
            fields: self.fields,
            field: 3,
        }
    }

    /// Whether it has any.
    pub fn has_histograms(&self) -> bool {
        self.has_histograms
    }

    /// What it says of its metric, if anything.
    ///
    /// # Errors
    /// [`WireError`] when that is not well formed or refers to no symbol.
    pub fn metadata(&self) -> Result<Option<Metadata<'a>>, WireError> {
        const METADATA: &str = "Metadata";
        let Some(mut message) = self.metadata else {
            return Ok(None);
        };
        let mut metadata = Metadata {
            kind: MetricKind::Unknown,
            help: "",
            unit: "",
        };
        while let Some(field) = message.field()? {
            match field.number {
                1 => metadata.kind = MetricKind::from_number(field.varint(METADATA)?),
                3 => metadata.help = self.text(field.varint(METADATA)?)?,
                4 => metadata.unit = self.text(field.varint(METADATA)?)?,
                _ => {}
            }
        }
        Ok(Some(metadata))
    }

    /// Its labels as remote write 1.0 has them; see [`super::labels::append_label_field`], with which this agrees
    /// byte for byte.
    ///
    /// # Errors
    /// [`WireError`] when a reference is to no symbol or they are not in pairs.
    #[inline]
    pub fn key<'k>(&self, memory: &'k mut KeyMemory) -> Result<&'k [u8], WireError> {
        let mut references = Message::new(&self.references, SERIES);
        let mut at = 0;
        while !references.is_empty() {
            let name = self.symbol(reference(&mut references)?)?;
            if references.is_empty() {
                return Err(WireError::OddReferences {
                    message: SERIES,
                    at: self.at,
                });
            }
            let value = self.symbol(reference(&mut references)?)?;
            at = self.append_label(name, value, &mut memory.0, at);
        }
        Ok(&memory.0[..at])
    }

    /// Writes a label at `at`, beyond which `key` may hold anything, and says where it ends.
    #[inline(always)]
    fn append_label(&self, name: Symbol, value: Symbol, key: &mut Vec<u8>, at: usize) -> usize {
        let (name_bytes, value_bytes) = (name.length as usize, value.length as usize);
        let window = |symbol: Symbol| -> Option<&[u8; COPY_BYTES]> {
            self.whole.get(symbol.at as usize..)?.first_chunk()
        };
        if name.is_short
            && value.is_short
            && let Some(name_window) = window(name)
            && let Some(value_window) = window(value)
            && let Some(room) = key
                .get_mut(at..)
                .and_then(|rest| rest.first_chunk_mut::<ROOM>())
        {
            room[0] = LABEL_KEY;
            room[1] = (name_bytes + value_bytes + 4) as u8;
            room[2] = 0x0a;
            room[3] = name_bytes as u8;
            room[4..4 + COPY_BYTES].copy_from_slice(name_window);
            let after = 4 + name_bytes;
            room[after] = 0x12;
            room[after + 1] = value_bytes as u8;
            room[after + 2..after + 2 + COPY_BYTES].copy_from_slice(value_window);
            return at + after + 2 + value_bytes;
        }
        self.append_long_label(name, value, key, at)
    }

    /// Also what makes room for those that are not long.
    #[cold]
    fn append_long_label(
        &self,
        name: Symbol,
        value: Symbol,
        key: &mut Vec<u8>,
        at: usize,
    ) -> usize {
        let text = |symbol: Symbol| {
            let from = symbol.at as usize;
            let part = &self.whole[from..from + symbol.length as usize];
            std::str::from_utf8(part).expect("the table was checked when it was read")
        };
        let room = key.len();
        key.truncate(at);
        append_label_field(text(name), text(value), key);
        let end = key.len();
        key.resize(room.max(end + ROOM), 0);
        end
    }
}

/// A reference; most are below 2^14.
#[inline(always)]
fn reference(references: &mut Message<'_>) -> Result<u64, WireError> {
    match references.bytes().first_chunk() {
        Some(&[low @ 0x80..=0xff, high @ 0..0x80]) => {
            references.at += 2;
            Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
        }
        _ => references.varint(),
    }
}

#[cfg(test)]
mod tests;
