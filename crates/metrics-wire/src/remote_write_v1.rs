//! Remote write 1.0: `prometheus.WriteRequest`.
//!
//! A series is handed out with its labels as the bytes in which they stand on the wire. A known
//! series is found by these bytes and costs no parsing; only of an unknown one are labels read
//! ([`super::labels::parse`]). As senders repeat themselves, a caller that remembers which series
//! followed which last time can do with one comparison ([`WriteRequest::next_if_labels`]), without
//! even looking for the end of the labels.
//!
//! Specification: prometheus.io/docs/specs/prw/remote_write_spec.

use std::borrow::Cow;

use super::MetricKind;
use super::error::WireError;
use super::histogram::HistogramFields;
use super::labels::{LABEL_KEY, parse_label};
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
        SampleFields { fields: self.fields }
    }

    /// Its native histograms in the order of the wire.
    pub fn histograms(&self) -> HistogramFields<'a> {
        HistogramFields { fields: self.fields, field_number: 4 }
    }

    /// Whether it has native histograms.
    pub fn has_histograms(&self) -> bool {
        self.has_histograms
    }

    /// Whatever comes after the labels that were found first.
    #[inline(always)]
    fn new(labels: &'a [u8], fields: Message<'a>) -> Result<Self, WireError> {
        let mut series = Self { labels: Cow::Borrowed(labels), fields, has_histograms: false };
        // One sample and nothing else, which is the rule, needs no walk: reading it checks it.
        if !is_single(&fields) {
            series.scan_fields()?;
        }
        Ok(series)
    }

    /// Looks for labels that come later, and for histograms, and checks what is not kept.
    fn scan_fields(&mut self) -> Result<(), WireError> {
        let mut fields = self.fields;
        loop {
            skip_samples(&mut fields)?;
            let start = fields.position;
            let Some(field) = fields.read_field()? else {
                return Ok(());
            };
            match field.number {
                1 => {
                    field.as_message(SERIES, "Label")?;
                    let bytes = &fields.body[start..fields.position];
                    self.labels.to_mut().extend_from_slice(bytes);
                }
                2 => drop(field.as_message(SERIES, "Sample")?),
                3 => check_exemplar(field.as_message(SERIES, "Exemplar")?)?,
                4 => {
                    field.as_message(SERIES, "Histogram")?;
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
    while let Some(field) = exemplar.read_field()? {
        match field.number {
            1 => drop(parse_label(field.as_message(EXEMPLAR, "Label")?)?),
            2 => drop(field.as_double(EXEMPLAR)?),
            3 => drop(field.as_varint(EXEMPLAR)?),
            _ => {}
        }
    }
    Ok(())
}

/// Moves on to the end of the labels at the start of a series.
#[inline(always)]
fn skip_labels(fields: &mut Message<'_>) -> Result<(), WireError> {
    let whole = fields.body;
    let (mut position, end) = (fields.position, fields.end);
    while position < end && whole[position] == LABEL_KEY {
        match whole.get(position + 1) {
            Some(length @ 0..0x80) => position += 2 + usize::from(*length),
            _ => {
                fields.position = position + 1;
                fields.read_delimited()?;
                position = fields.position;
            }
        }
    }
    if position > end {
        return Err(fields.truncated_error());
    }
    fields.position = position;
    Ok(())
}

impl<'a> WriteRequest<'a> {
    /// Begins to read an uncompressed body. Errors come when they are met: take no effect before
    /// all is read.
    pub fn new(body: &'a [u8]) -> Self {
        Self { fields: Message::new(body, REQUEST) }
    }

    /// The next series, if its labels are exactly these bytes; otherwise nothing is read.
    ///
    /// # Errors
    /// [`WireError`] when the series is not well formed after its labels.
    #[inline]
    pub fn next_if_labels(
        &mut self,
        labels: &[u8],
    ) -> Result<Option<WrittenSeries<'a>>, WireError> {
        let mut fields = self.fields;
        let Some(&SERIES_KEY) = fields.rest().first() else {
            return Ok(None);
        };
        fields.position += 1;
        let mut series = fields.read_delimited()?.with_name(SERIES);
        if labels.is_empty() || !series.rest().starts_with(labels) {
            return Ok(None);
        }
        let labels_start = series.position;
        series.position += labels.len();
        if series.rest().first() == Some(&LABEL_KEY) {
            return Ok(None);
        }
        let series = WrittenSeries::new(&series.body[labels_start..series.position], series)?;
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
        if self.fields.rest().first() == Some(&SERIES_KEY) {
            self.fields.position += 1;
            let mut series = self.fields.read_delimited()?.with_name(SERIES);
            let labels_start = series.position;
            skip_labels(&mut series)?;
            let labels = &series.body[labels_start..series.position];
            return Ok(Some(RequestEntry::Series(WrittenSeries::new(labels, series)?)));
        }
        self.next_other()
    }

    #[cold]
    fn next_other(&mut self) -> Result<Option<RequestEntry<'a>>, WireError> {
        while let Some(field) = self.fields.read_field()? {
            if field.number == 1 {
                // Its key takes more than one byte, or it has another type.
                let mut series = field.as_message(REQUEST, SERIES)?;
                let labels_start = series.position;
                skip_labels(&mut series)?;
                let labels = &series.body[labels_start..series.position];
                return Ok(Some(RequestEntry::Series(WrittenSeries::new(labels, series)?)));
            }
            if field.number == 3 {
                let message = field.as_message(REQUEST, "MetricMetadata")?;
                return Ok(Some(RequestEntry::Metadata(read_metadata(message)?)));
            }
        }
        Ok(None)
    }
}

fn read_metadata(mut message: Message<'_>) -> Result<WrittenMetadata<'_>, WireError> {
    const METADATA: &str = "MetricMetadata";
    let mut metadata =
        WrittenMetadata { metric: "", kind: MetricKind::Unknown, help: "", unit: "" };
    while let Some(field) = message.read_field()? {
        match field.number {
            1 => metadata.kind = MetricKind::from_number(field.as_varint(METADATA)?),
            2 => metadata.metric = field.as_text(METADATA)?,
            4 => metadata.help = field.as_text(METADATA)?,
            5 => metadata.unit = field.as_text(METADATA)?,
            _ => {}
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests;
