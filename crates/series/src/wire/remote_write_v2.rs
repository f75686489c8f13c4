//! Remote write 2.0: `io.prometheus.write.v2.Request`.
//!
//! Strings are in a table of the request, which is checked once; series refer to it. References mean nothing in
//! the next request, so that they cannot be what a series is looked up by. [`Series::append_key`] writes the
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
use super::labels::LABEL_KEY;
use super::protobuf::{Message, put_varint};
use super::samples::{SAMPLE_KEY, Samples};

const REQUEST: &str = "Request";
const SERIES: &str = "TimeSeries";
const SYMBOL_KEY: u8 = 0x22;
const SERIES_KEY: u8 = 0x2a;
const REFERENCES_KEY: u8 = 0x0a;

/// Strings of at most so many bytes are copied without looking how long they are.
const COPY_BYTES: usize = 32;

/// A string of the table: where it is in the body.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    at: u32,
    length: u32,
}

/// The memory of a table of symbols, to be used again.
#[derive(Debug, Default)]
pub struct SymbolMemory(Vec<Symbol>);

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
            match fields.bytes().first() {
                Some(&SERIES_KEY) => {
                    fields.at += 1;
                    fields.delimited()?;
                }
                Some(&SYMBOL_KEY) => {
                    fields.at += 1;
                    memory.0.push(read_symbol(fields.delimited()?)?);
                }
                _ => {
                    let Some(field) = fields.field()? else { break };
                    match field.number {
                        4 => memory.0.push(read_symbol(field.message(REQUEST, REQUEST)?)?),
                        5 => drop(field.message(REQUEST, SERIES)?),
                        _ => {}
                    }
                }
            }
        }
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
    #[expect(clippy::should_implement_trait, reason = "an iterator of results goes on after an error")]
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

fn read_symbol(message: Message<'_>) -> Result<Symbol, WireError> {
    message.text()?;
    let place = u32::try_from(message.end).map_err(|_| message.truncated())?;
    let length = (message.end - message.at) as u32;
    Ok(Symbol {
        at: place - length,
        length,
    })
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
        let two: Option<&[u8; 2]> = fields.bytes().first_chunk();
        let is_single = two.is_some_and(|[key, length]| {
            *key == SAMPLE_KEY && *length < 0x80 && fields.at + 2 + usize::from(*length) == fields.end
        });
        if !is_single {
            series.walk()?;
        }
        Ok(series)
    }

    fn walk(&mut self) -> Result<(), WireError> {
        let mut fields = self.fields;
        loop {
            while let Some(&[SAMPLE_KEY, length @ 0..0x80]) = fields.bytes().first_chunk() {
                fields.at += 2;
                fields.take(u64::from(length))?;
            }
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
            _ => Err(WireError::OddReferences { message: EXEMPLAR, at }),
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

    /// Appends its labels as remote write 1.0 has them; see [`super::labels::append_label_field`], with which this
    /// agrees byte for byte.
    ///
    /// # Errors
    /// [`WireError`] when a reference is to no symbol or they are not in pairs.
    pub fn append_key(&self, key: &mut Vec<u8>) -> Result<(), WireError> {
        let mut references = Message::new(&self.references, SERIES);
        let mut at = key.len();
        while !references.is_empty() {
            let name = self.symbol(references.varint()?)?;
            if references.is_empty() {
                return Err(WireError::OddReferences {
                    message: SERIES,
                    at: self.at,
                });
            }
            let value = self.symbol(references.varint()?)?;
            at = self.append_label(name, value, key, at);
        }
        key.truncate(at);
        Ok(())
    }

    /// Writes a label at `at`, beyond which `key` may hold anything, and says where it ends.
    #[inline(always)]
    fn append_label(&self, name: Symbol, value: Symbol, key: &mut Vec<u8>, at: usize) -> usize {
        const ROOM: usize = 2 * COPY_BYTES + 6;
        let (name_bytes, value_bytes) = (name.length as usize, value.length as usize);
        if key.len() < at + ROOM {
            key.resize(at + 8 * ROOM, 0);
        }
        let fits = |bytes: usize| (1..=COPY_BYTES).contains(&bytes);
        let name_window = self.whole.get(name.at as usize..).and_then(|part| part.first_chunk());
        let value_window = self.whole.get(value.at as usize..).and_then(|part| part.first_chunk());
        let windows: (Option<&[u8; COPY_BYTES]>, Option<&[u8; COPY_BYTES]>) = (name_window, value_window);
        if let (Some(name_window), Some(value_window)) = windows
            && fits(name_bytes)
            && fits(value_bytes)
            && let Some(room) = key[at..].first_chunk_mut::<ROOM>()
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

    #[cold]
    fn append_long_label(&self, name: Symbol, value: Symbol, key: &mut Vec<u8>, at: usize) -> usize {
        let text = |symbol: Symbol| {
            let from = symbol.at as usize;
            let part = &self.whole[from..from + symbol.length as usize];
            std::str::from_utf8(part).expect("the table was checked when it was read")
        };
        key.truncate(at);
        super::labels::append_label_field(text(name), text(value), key);
        key.len()
    }
}

#[cfg(test)]
mod tests;
