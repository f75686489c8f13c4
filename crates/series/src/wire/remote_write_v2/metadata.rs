//! What the series of a request say of their metrics.

use super::{METADATA, Series, reference};
use crate::model::METRIC_NAME;
use crate::wire::MetricKind;
use crate::wire::error::WireError;

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

impl<'a> Series<'a, '_> {
    /// What it says of its metric, if anything.
    ///
    /// # Errors
    /// [`WireError`] when that is not well formed or refers to what is no symbol, or not UTF-8.
    pub fn metadata(&self) -> Result<Option<Metadata<'a>>, WireError> {
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

    /// The same as it stands on the wire: within a request, the same bytes say the same.
    pub fn raw_metadata(&self) -> Option<&'a [u8]> {
        self.metadata.map(|message| message.bytes())
    }

    /// Which symbol is the value of its label `__name__`, if there is one.
    #[inline]
    pub fn metric(&self) -> Option<usize> {
        let references = &*self.references;
        let mut from = 0;
        while from < references.len() {
            let (name, after) = reference(references, from);
            let (value, next) = reference(references, after);
            self.symbols.get(value)?;
            if self.symbols.get(name)?.bytes(self.whole) == METRIC_NAME.as_bytes() {
                return Some(value);
            }
            from = next;
        }
        None
    }

    /// A symbol of its request that [`Series::metric`] has named.
    ///
    /// # Errors
    /// [`WireError`] when it is not UTF-8.
    pub fn symbol(&self, index: usize) -> Result<&'a str, WireError> {
        self.symbols[index].text(self.whole)
    }
}
