//! Remote write 1.0: `prometheus.WriteRequest`.
//!
//! A series is handed out with its labels as the bytes in which they stand on the wire. A known
//! series is found by these bytes and costs no parsing; only of an unknown one are labels read
//! ([`super::labels::parse`]). As senders repeat themselves, a caller that remembers which series
//! followed which last time can do with one comparison ([`WriteRequest::next_if`]), without even
//! looking for the end of the labels.
//!
//! Specification: prometheus.io/docs/specs/prw/remote_write_spec.

use std::borrow::Cow;

use super::MetricKind;
use super::error::WireError;
use super::histogram::HistogramFields;
use super::labels::{LABEL_KEY, parse_one};
use super::protobuf::Message;
use super::samples::{SampleFields, is_single, skip_samples};

const REQUEST: &str = "WriteRequest";
const SERIES: &str = "TimeSeries";
const SERIES_KEY: u8 = 0x0a;

/// A request that is being read.
#[derive(Clone, Debug)]
pub struct WriteRequest<'a> {
    fields: Message<'a>,
}

/// A series of a request.
#[derive(Clone, Debug)]
pub struct WrittenSeries<'a> {
    /// Its label fields as they stand on the wire. Only those of a sender that mixes them with
    /// other fields are gathered.
    pub labels: Cow<'a, [u8]>,
    fields: Message<'a>,
    has_histograms: bool,
}

/// Metadata of a metric, as a request has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenMetadata<'a> {
    /// The metric's name, without `_bucket` and the like.
    pub metric: &'a str,
    /// Kind of the metric.
    pub kind: MetricKind,
    /// Help text of the metric.
    pub help: &'a str,
    /// Unit of the metric.
    pub unit: &'a str,
}

/// A part of a request.
#[derive(Clone, Debug)]
pub enum RequestEntry<'a> {
    /// A series with its samples.
    Series(WrittenSeries<'a>),
    /// Metadata, in requests of their own as a rule.
    Metadata(WrittenMetadata<'a>),
}

impl<'a> WrittenSeries<'a> {
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
            field: 4,
        }
    }

    /// Whether it has native histograms.
    pub fn has_histograms(&self) -> bool {
        self.has_histograms
    }

    /// Whatever comes after the labels that were found first.
    #[inline(always)]
    fn new(labels: &'a [u8], fields: Message<'a>) -> Result<Self, WireError> {
        let mut series = Self {
            labels: Cow::Borrowed(labels),
            fields,
            has_histograms: false,
        };
        // One sample and nothing else, which is the rule, needs no walk: reading it checks it.
        if !is_single(&fields) {
            series.walk()?;
        }
        Ok(series)
    }

    /// Looks for labels that come later, and for histograms, and checks what is not kept.
    fn walk(&mut self) -> Result<(), WireError> {
        let mut fields = self.fields;
        loop {
            skip_samples(&mut fields)?;
            let from = fields.at;
            let Some(field) = fields.field()? else {
                return Ok(());
            };
            match field.number {
                1 => {
                    field.message(SERIES, "Label")?;
                    let bytes = &fields.whole[from..fields.at];
                    self.labels.to_mut().extend_from_slice(bytes);
                }
                2 => drop(field.message(SERIES, "Sample")?),
                3 => check_exemplar(field.message(SERIES, "Exemplar")?)?,
                4 => {
                    field.message(SERIES, "Histogram")?;
                    self.has_histograms = true;
                }
                _ => {}
            }
        }
    }
}

/// Exemplars are not kept, but a request in which one is broken is.
fn check_exemplar(mut exemplar: Message<'_>) -> Result<(), WireError> {
    const EXEMPLAR: &str = "Exemplar";
    while let Some(field) = exemplar.field()? {
        match field.number {
            1 => drop(parse_one(field.message(EXEMPLAR, "Label")?)?),
            2 => drop(field.double(EXEMPLAR)?),
            3 => drop(field.varint(EXEMPLAR)?),
            _ => {}
        }
    }
    Ok(())
}

/// Moves on to the end of the labels at the start of a series.
#[inline(always)]
fn skip_labels(fields: &mut Message<'_>) -> Result<(), WireError> {
    let whole = fields.whole;
    let (mut at, end) = (fields.at, fields.end);
    while at < end && whole[at] == LABEL_KEY {
        match whole.get(at + 1) {
            Some(length @ 0..0x80) => at += 2 + usize::from(*length),
            _ => {
                fields.at = at + 1;
                fields.delimited()?;
                at = fields.at;
            }
        }
    }
    if at > end {
        return Err(fields.truncated());
    }
    fields.at = at;
    Ok(())
}

impl<'a> WriteRequest<'a> {
    /// Begins to read an uncompressed body. Errors come when they are met: take no effect before
    /// all is read.
    pub fn new(body: &'a [u8]) -> Self {
        Self {
            fields: Message::new(body, REQUEST),
        }
    }

    /// The next series, if its labels are exactly these bytes; otherwise nothing is read.
    ///
    /// # Errors
    /// [`WireError`] when the series is not well formed after its labels.
    #[inline]
    pub fn next_if(&mut self, labels: &[u8]) -> Result<Option<WrittenSeries<'a>>, WireError> {
        let mut fields = self.fields;
        let Some(&SERIES_KEY) = fields.bytes().first() else {
            return Ok(None);
        };
        fields.at += 1;
        let mut series = fields.delimited()?.named(SERIES);
        if labels.is_empty() || !series.bytes().starts_with(labels) {
            return Ok(None);
        }
        let from = series.at;
        series.at += labels.len();
        if series.bytes().first() == Some(&LABEL_KEY) {
            return Ok(None);
        }
        let series = WrittenSeries::new(&series.whole[from..series.at], series)?;
        if matches!(series.labels, Cow::Owned(_)) {
            return Ok(None);
        }
        self.fields = fields;
        Ok(Some(series))
    }

    /// The next series or metadata; `None` at the end.
    ///
    /// # Errors
    /// [`WireError`] when it is not well formed. Nothing more can be read then.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results goes on after an error"
    )]
    pub fn next(&mut self) -> Result<Option<RequestEntry<'a>>, WireError> {
        if self.fields.bytes().first() == Some(&SERIES_KEY) {
            self.fields.at += 1;
            let mut series = self.fields.delimited()?.named(SERIES);
            let from = series.at;
            skip_labels(&mut series)?;
            let labels = &series.whole[from..series.at];
            return Ok(Some(RequestEntry::Series(WrittenSeries::new(
                labels, series,
            )?)));
        }
        self.next_other()
    }

    #[cold]
    fn next_other(&mut self) -> Result<Option<RequestEntry<'a>>, WireError> {
        while let Some(field) = self.fields.field()? {
            if field.number == 1 {
                // Its key takes more than one byte, or it has another type.
                let mut series = field.message(REQUEST, SERIES)?;
                let from = series.at;
                skip_labels(&mut series)?;
                let labels = &series.whole[from..series.at];
                return Ok(Some(RequestEntry::Series(WrittenSeries::new(
                    labels, series,
                )?)));
            }
            if field.number == 3 {
                let message = field.message(REQUEST, "MetricMetadata")?;
                return Ok(Some(RequestEntry::Metadata(read_metadata(message)?)));
            }
        }
        Ok(None)
    }
}

fn read_metadata(mut message: Message<'_>) -> Result<WrittenMetadata<'_>, WireError> {
    const METADATA: &str = "MetricMetadata";
    let mut metadata = WrittenMetadata {
        metric: "",
        kind: MetricKind::Unknown,
        help: "",
        unit: "",
    };
    while let Some(field) = message.field()? {
        match field.number {
            1 => metadata.kind = MetricKind::from_number(field.varint(METADATA)?),
            2 => metadata.metric = field.text(METADATA)?,
            4 => metadata.help = field.text(METADATA)?,
            5 => metadata.unit = field.text(METADATA)?,
            _ => {}
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests;
