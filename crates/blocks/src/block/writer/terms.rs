//! Collects the series of each label and value while a block is written.

use std::collections::BTreeMap;

use egret_log::Disk;
use egret_metrics_model::Labels;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::super::error::BlockError;
use super::output::Output;
use crate::core::layout::Extent;
use crate::core::names::{Name, ValuesPage, encode_values_directory};
use crate::core::postings::PostingsBuilder;
use crate::core::terms::{LIST_INLINE_MAX, PostingsRef, Term, TermsBuilder};

#[derive(Debug, Default)]
struct LabelPostings {
    /// All series that have the label.
    all_series: PostingsBuilder,
    value_indexes: HashTable<u32>,
    values: Vec<(Box<str>, PostingsBuilder)>,
}

#[derive(Debug, Default)]
pub(super) struct LabelValues {
    names: BTreeMap<Box<str>, LabelPostings>,
}

impl LabelValues {
    pub(crate) fn push(&mut self, series: u32, labels: &Labels) {
        for (name, value) in labels.iter() {
            match self.names.get_mut(name) {
                Some(values) => values.push(series, value),
                None => self.names.entry(name.into()).or_default().push(series, value),
            }
        }
    }

    /// Writes the pages of values and lists of all labels.
    pub(crate) fn finish<D: Disk>(
        &mut self,
        output: &mut Output<D>,
    ) -> Result<Vec<Name>, BlockError> {
        let names = std::mem::take(&mut self.names).into_iter();
        names.map(|(name, values)| values.write(name, output)).collect()
    }
}

impl LabelPostings {
    fn push(&mut self, series: u32, value: &str) {
        self.all_series.push(series);
        let hash = |value: &str| xxh3_64(value.as_bytes());
        let values = &self.values;
        let is_same = |place: &u32| *values[*place as usize].0 == *value;
        let index = match self.value_indexes.find(hash(value), is_same) {
            Some(place) => *place,
            None => {
                let place = values.len() as u32;
                let rehash = |place: &u32| hash(&values[*place as usize].0);
                self.value_indexes.insert_unique(hash(value), place, rehash);
                self.values.push((value.into(), PostingsBuilder::default()));
                place
            }
        };
        self.values[index as usize].1.push(series);
    }

    fn write<D: Disk>(
        mut self,
        name: Box<str>,
        output: &mut Output<D>,
    ) -> Result<Name, BlockError> {
        drop(self.value_indexes);
        self.values.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let (value_count, series) = (self.values.len() as u64, self.all_series.count());
        let list = output.put_checked(&self.all_series.finish())?;
        let mut pages = Vec::new();
        let mut page = TermsBuilder::default();
        for (value, postings) in self.values {
            let series = postings.count();
            let bytes = postings.finish();
            let list = if bytes.len() <= LIST_INLINE_MAX {
                PostingsRef::Inline(&bytes)
            } else {
                PostingsRef::At(output.put_checked(&bytes)?)
            };
            page.push(&value, &Term { series, postings: list });
            if page.is_full() {
                write_page(&mut page, &mut pages, output)?;
            }
        }
        write_page(&mut page, &mut pages, output)?;
        let pages = output.put_frame(&encode_values_directory(&pages))?;
        Ok(Name { name, values: value_count, series, pages, postings: list })
    }
}

fn write_page<D: Disk>(
    page: &mut TermsBuilder,
    pages: &mut Vec<ValuesPage>,
    output: &mut Output<D>,
) -> Result<(), BlockError> {
    if let Some((first, bytes)) = page.take_page() {
        let extent: Extent = output.put_frame(&bytes)?;
        pages.push(ValuesPage { first: first.into(), extent });
    }
    Ok(())
}
