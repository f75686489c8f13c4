//! Native histograms as both versions of remote write have them: the same message with the same
//! numbers.

use std::cmp::Ordering;

use egret_metrics_model::{Buckets, CounterReset, Counts, Histogram, Span, TimeMs};

use super::error::WireError;
use super::protobuf::Message;
use egret_base::codec::unzigzag;

const MESSAGE: &str = "Histogram";

/// The schema of histograms whose bounds are listed.
pub(crate) const CUSTOM_SCHEMA: i32 = -53;

/// A number of observations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WireCount {
    /// Count of an integer histogram.
    Integer(u64),
    /// Count of a float histogram.
    Float(f64),
}

impl WireCount {
    fn as_float(self) -> f64 {
        match self {
            Self::Integer(count) => count as f64,
            Self::Float(count) => count,
        }
    }
}

impl Default for WireCount {
    fn default() -> Self {
        Self::Integer(0)
    }
}

/// A run of buckets that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireSpan {
    /// Buckets left out since the span before; of the first, its first index.
    pub offset: i32,
    /// Number of buckets in the span.
    pub length: u32,
}

/// The buckets of one sign. Integer histograms have `deltas`, float histograms `counts`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WireBuckets {
    /// Indices of the buckets that are there.
    pub spans: Vec<WireSpan>,
    /// Each count less the one before.
    pub deltas: Vec<i64>,
    /// Counts of the buckets, of a float histogram.
    pub counts: Vec<f64>,
}

/// A native histogram at a time. Its memory is used again by [`HistogramFields::read`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WireHistogram {
    /// Time in milliseconds since 1970.
    pub time_ms: TimeMs,
    /// Number of all observations.
    pub count: WireCount,
    /// Number of observations in the zero bucket.
    pub zero_count: WireCount,
    /// Sum of all observations.
    pub sum: f64,
    /// −4 to 8, or [`CUSTOM_SCHEMA`].
    pub schema: i32,
    /// How far from zero the bucket around zero goes.
    pub zero_threshold: f64,
    /// Buckets of values below zero.
    pub negative: WireBuckets,
    /// Above zero, or those of custom bounds.
    pub positive: WireBuckets,
    /// 0 unknown, 1 begun anew, 2 not, 3 a gauge.
    pub reset_hint: u8,
    /// Upper bounds, without +Inf, where the schema is custom.
    pub custom_values: Vec<f64>,
}

fn read_span(mut message: Message<'_>) -> Result<WireSpan, WireError> {
    let mut span = WireSpan::default();
    while let Some(field) = message.read_field()? {
        match field.number {
            1 => span.offset = unzigzag(field.as_varint("BucketSpan")?) as i32,
            2 => span.length = field.as_varint("BucketSpan")? as u32,
            _ => {}
        }
    }
    Ok(span)
}

impl WireBuckets {
    fn from_buckets(buckets: &Buckets) -> Self {
        let span = |span: &Span| WireSpan { offset: span.offset, length: span.length };
        let mut previous_count = 0_u64;
        let mut to_delta = |count: &u64| {
            let delta = count.wrapping_sub(previous_count) as i64;
            previous_count = *count;
            delta
        };
        let (deltas, counts) = match &buckets.counts {
            Counts::Integer(counts) => (counts.iter().map(&mut to_delta).collect(), Vec::new()),
            Counts::Float(counts) => (Vec::new(), counts.clone()),
        };
        Self { spans: buckets.spans.iter().map(span).collect(), deltas, counts }
    }

    fn to_buckets(&self, is_float: bool) -> Buckets {
        let span = |span: &WireSpan| Span { offset: span.offset, length: span.length };
        let mut count = 0_i64;
        let mut to_absolute = |delta: &i64| {
            count = count.wrapping_add(*delta);
            count as u64
        };
        Buckets {
            spans: self.spans.iter().map(span).collect(),
            counts: if is_float {
                Counts::Float(self.counts.clone())
            } else {
                Counts::Integer(self.deltas.iter().map(&mut to_absolute).collect())
            },
        }
    }

    fn clear(&mut self) {
        self.spans.clear();
        self.deltas.clear();
        self.counts.clear();
    }

    /// The index after the last bucket; `None` when an index does not fit into 32 bits.
    fn end_index(&self) -> Option<i64> {
        let fits = |index: i64| i32::try_from(index).is_ok();
        self.spans.iter().try_fold(0i64, |index, span| {
            let begin = index + i64::from(span.offset);
            let end = begin + i64::from(span.length);
            (fits(begin) && fits(end)).then_some(end)
        })
    }

    /// Number of observations in the buckets of an integer histogram.
    fn observed(&self) -> u128 {
        let mut count = 0i64;
        let counts = self.deltas.iter().map(|delta| {
            count = count.wrapping_add(*delta);
            u128::from(count.unsigned_abs())
        });
        counts.sum()
    }

    fn find_problem(&self, is_float: bool) -> Option<&'static str> {
        let (used, other) = if is_float {
            (self.counts.len(), self.deltas.len())
        } else {
            (self.deltas.len(), self.counts.len())
        };
        if other > 0 {
            return Some("integer and float buckets are mixed");
        }
        let span_length: u64 = self.spans.iter().map(|span| u64::from(span.length)).sum();
        if span_length != used as u64 {
            return Some("spans and the number of buckets do not match");
        }
        if self.spans.iter().skip(1).any(|span| span.offset < 0) {
            return Some("a span overlaps the one before");
        }
        // NaN is refused too.
        if !self.counts.iter().all(|count| *count >= 0.0) {
            return Some("a bucket has a negative count");
        }
        let mut count = 0i64;
        for delta in &self.deltas {
            match count.checked_add(*delta) {
                Some(next) if next >= 0 => count = next,
                _ => return Some("a bucket has a negative count"),
            }
        }
        None
    }
}

impl WireHistogram {
    fn clear(&mut self) {
        self.negative.clear();
        self.positive.clear();
        self.custom_values.clear();
        let (negative, positive) =
            (std::mem::take(&mut self.negative), std::mem::take(&mut self.positive));
        let custom_values = std::mem::take(&mut self.custom_values);
        *self = Self { negative, positive, custom_values, ..Self::default() };
    }

    /// Whether its counts are floats.
    pub(crate) fn is_float(&self) -> bool {
        matches!(self.count, WireCount::Float(_))
    }

    fn read_message(&mut self, mut message: Message<'_>) -> Result<(), WireError> {
        self.clear();
        let offset = message.position;
        while let Some(field) = message.read_field()? {
            let number = || field.as_varint(MESSAGE);
            let double = || field.as_double(MESSAGE);
            match field.number {
                1 => self.count = WireCount::Integer(number()?),
                2 => self.count = WireCount::Float(double()?),
                3 => self.sum = double()?,
                4 => self.schema = unzigzag(number()?) as i32,
                5 => self.zero_threshold = double()?,
                6 => self.zero_count = WireCount::Integer(number()?),
                7 => self.zero_count = WireCount::Float(double()?),
                8 => push_span(&mut self.negative, field.as_message(MESSAGE, "BucketSpan")?)?,
                9 => push_deltas(&mut self.negative, &field)?,
                10 => field.append_doubles(MESSAGE, &mut self.negative.counts)?,
                11 => push_span(&mut self.positive, field.as_message(MESSAGE, "BucketSpan")?)?,
                12 => push_deltas(&mut self.positive, &field)?,
                13 => field.append_doubles(MESSAGE, &mut self.positive.counts)?,
                14 => self.reset_hint = number()?.min(255) as u8,
                15 => self.time_ms = number()? as i64,
                16 => field.append_doubles(MESSAGE, &mut self.custom_values)?,
                _ => {}
            }
        }
        match self.find_problem() {
            Some(problem) => Err(WireError::Histogram { problem, at: offset }),
            None => Ok(()),
        }
    }

    /// A histogram that is kept, as it goes over the wire.
    pub fn from_histogram(time_ms: TimeMs, histogram: &Histogram) -> Self {
        let (zero_count, count) = match histogram.integer_counts {
            Some((zero, count)) => (WireCount::Integer(zero), WireCount::Integer(count)),
            None => (WireCount::Float(histogram.zero_count), WireCount::Float(histogram.count)),
        };
        Self {
            time_ms,
            count,
            zero_count,
            sum: histogram.sum,
            schema: i32::from(histogram.schema),
            zero_threshold: histogram.zero_threshold,
            negative: WireBuckets::from_buckets(&histogram.negative),
            positive: WireBuckets::from_buckets(&histogram.positive),
            reset_hint: match histogram.counter_reset {
                CounterReset::Unknown => 0,
                CounterReset::Reset => 1,
                CounterReset::NotReset => 2,
                CounterReset::Gauge => 3,
            },
            custom_values: histogram.custom_bounds.to_vec(),
        }
    }

    /// The histogram in the form in which it is stored. Nothing may contradict itself in it: see
    /// [`WireHistogram::problem`].
    pub fn to_histogram(&self) -> Histogram {
        let (count, zero_count) = (self.count.as_float(), self.zero_count.as_float());
        let integer = match (self.count, self.zero_count) {
            (WireCount::Integer(count), WireCount::Integer(zero)) => Some((zero, count)),
            _ => None,
        };
        Histogram {
            schema: self.schema as i8,
            zero_threshold: self.zero_threshold,
            zero_count,
            count,
            integer_counts: integer,
            sum: self.sum,
            positive: self.positive.to_buckets(self.is_float()),
            negative: self.negative.to_buckets(self.is_float()),
            custom_bounds: self.custom_values.as_slice().into(),
            counter_reset: match self.reset_hint {
                1 => CounterReset::Reset,
                2 => CounterReset::NotReset,
                3 => CounterReset::Gauge,
                _ => CounterReset::Unknown,
            },
        }
    }

    /// What contradicts itself in it, if anything does.
    pub(crate) fn find_problem(&self) -> Option<&'static str> {
        if !(-4..=8).contains(&self.schema) && self.schema != CUSTOM_SCHEMA {
            return Some("schema is neither -4 to 8 nor -53");
        }
        if !self.zero_threshold.is_finite() || self.zero_threshold < 0.0 {
            return Some("the zero threshold is not a finite number of at least 0");
        }
        if self.schema != CUSTOM_SCHEMA && !self.custom_values.is_empty() {
            return Some("custom bounds belong to schema -53");
        }
        if !self.custom_values.is_sorted_by(|one, other| one < other)
            || !self.custom_values.iter().all(|bound| *bound < f64::INFINITY)
        {
            return Some("custom bounds are not increasing numbers");
        }
        if self.reset_hint > 3 {
            return Some("reset hint is not 0 to 3");
        }
        let has_default_zero_count = matches!(self.zero_count, WireCount::Integer(0));
        if !has_default_zero_count
            && self.is_float() != matches!(self.zero_count, WireCount::Float(_))
        {
            return Some("count and zero count are not of one type");
        }
        if self.schema == CUSTOM_SCHEMA {
            let end_index = self.positive.end_index();
            if end_index.is_none_or(|reach| reach > self.custom_values.len() as i64 + 1)
                || self.positive.spans.first().is_some_and(|span| span.offset < 0)
            {
                return Some("buckets go beyond the custom bounds");
            }
            if !self.negative.spans.is_empty() {
                return Some("custom bounds have no negative buckets");
            }
        }
        if self.positive.end_index().is_none() || self.negative.end_index().is_none() {
            return Some("a bucket's index exceeds 32 bits");
        }
        let is_float = self.is_float();
        self.positive
            .find_problem(is_float)
            .or_else(|| self.negative.find_problem(is_float))
            .or_else(|| self.count_problem())
    }

    /// What is wrong with the count, given buckets without a problem. As in Prometheus, float
    /// counts are not added up, as rounding would refuse correct histograms, and an observation of
    /// NaN is in the count and in no bucket.
    fn count_problem(&self) -> Option<&'static str> {
        let count = match self.count {
            WireCount::Integer(count) => count,
            // NaN is a staleness marker's.
            WireCount::Float(count) if count < 0.0 => return Some("the count is negative"),
            WireCount::Float(_) => {
                let is_negative = self.zero_count.as_float() < 0.0;
                return is_negative.then_some("the zero count is negative");
            }
        };
        let zero_count = match self.zero_count {
            WireCount::Integer(zero_count) => u128::from(zero_count),
            WireCount::Float(_) => 0,
        };
        let observed = zero_count + self.positive.observed() + self.negative.observed();
        match observed.cmp(&u128::from(count)) {
            Ordering::Greater => Some("the buckets hold more observations than the count"),
            Ordering::Less if !self.sum.is_nan() => {
                Some("the buckets hold fewer observations than the count")
            }
            _ => None,
        }
    }
}

fn push_span(buckets: &mut WireBuckets, message: Message<'_>) -> Result<(), WireError> {
    buckets.spans.push(read_span(message)?);
    Ok(())
}

fn push_deltas(
    buckets: &mut WireBuckets,
    field: &super::protobuf::Field<'_>,
) -> Result<(), WireError> {
    field.for_each_varint(MESSAGE, |word| buckets.deltas.push(unzigzag(word)))
}

/// The histograms among the fields of a series, which were walked over before.
#[derive(Clone, Copy, Debug)]
pub struct HistogramFields<'a> {
    pub(crate) fields: Message<'a>,
    /// In which field of a series they are: 4 in version 1, 3 in version 2.
    pub(crate) field_number: u32,
}

impl HistogramFields<'_> {
    /// Reads the next into `histogram`, and whether there was one.
    ///
    /// # Errors
    /// [`WireError`] when it is not well formed or contradicts itself; the next can be read all the
    /// same.
    pub fn read(&mut self, histogram: &mut WireHistogram) -> Result<bool, WireError> {
        while let Some(field) = self.fields.read_field()? {
            if field.number == self.field_number {
                histogram.read_message(field.as_message("TimeSeries", MESSAGE)?)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
