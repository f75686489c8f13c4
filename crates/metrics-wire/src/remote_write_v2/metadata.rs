//! Metadata of metrics, from the series of a request.

use egret_metrics_model::METRIC_NAME;

use super::{METADATA, WrittenSeriesV2, read_reference};
use crate::MetricKind;
use crate::error::WireError;

/// Metadata of a series' metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenMetadataV2<'a> {
    /// Kind of the metric.
    pub kind: MetricKind,
    /// Help text of the metric.
    pub help: &'a str,
    /// Unit of the metric.
    pub unit: &'a str,
}

impl<'a> WrittenSeriesV2<'a, '_> {
    /// What it says of its metric, if anything.
    ///
    /// # Errors
    /// [`WireError`] when that is not well formed or refers to what is no symbol, or not UTF-8.
    pub fn metadata(&self) -> Result<Option<WrittenMetadataV2<'a>>, WireError> {
        let Some(mut message) = self.metadata else {
            return Ok(None);
        };
        let mut metadata = WrittenMetadataV2 { kind: MetricKind::Unknown, help: "", unit: "" };
        while let Some(field) = message.read_field()? {
            match field.number {
                1 => metadata.kind = MetricKind::from_number(field.as_varint(METADATA)?),
                3 => metadata.help = self.symbol_text(field.as_varint(METADATA)?)?,
                4 => metadata.unit = self.symbol_text(field.as_varint(METADATA)?)?,
                _ => {}
            }
        }
        Ok(Some(metadata))
    }

    /// The bytes of its metadata on the wire: within a request, equal bytes are equal metadata.
    pub fn raw_metadata(&self) -> Option<&'a [u8]> {
        self.metadata.map(|message| message.rest())
    }

    /// Which symbol is the value of its label `__name__`, if there is one.
    #[inline]
    pub fn metric_symbol(&self) -> Option<usize> {
        let references = &*self.references;
        let mut position = 0;
        while position < references.len() {
            let (name, after) = read_reference(references, position);
            let (value, next) = read_reference(references, after);
            self.symbols.get(value)?;
            if self.symbols.get(name)?.bytes(self.body) == METRIC_NAME.as_bytes() {
                return Some(value);
            }
            position = next;
        }
        None
    }

    /// A symbol of its request that [`WrittenSeriesV2::metric_symbol`] has named.
    ///
    /// # Errors
    /// [`WireError`] when it is not UTF-8.
    pub fn symbol(&self, index: usize) -> Result<&'a str, WireError> {
        self.symbols[index].text(self.body)
    }
}
