//! Collects the series of each label and value while a block is written.

use std::collections::BTreeMap;

use egret_log::Disk;
use egret_metrics_model::Labels;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::super::error::BlockError;
use super::output::Output;
use crate::core::layout::Extent;
use crate::core::names::{Name, ValuesPage, encode_pages};
use crate::core::postings::PostingsBuilder;
use crate::core::terms::{LIST_INLINE_MAX, List, Term, TermsBuilder};

#[derive(Debug, Default)]
struct LabelPostings {
    /// All series that have the label.
    all: PostingsBuilder,
    by_value: HashTable<u32>,
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
                None => self
                    .names
                    .entry(name.into())
                    .or_default()
                    .push(series, value),
            }
        }
    }

    /// Writes the pages of values and lists of all labels.
    pub(crate) fn finish<D: Disk>(
        &mut self,
        output: &mut Output<D>,
    ) -> Result<Vec<Name>, BlockError> {
        let names = std::mem::take(&mut self.names).into_iter();
        names
            .map(|(name, values)| values.write(name, output))
            .collect()
    }
}

impl LabelPostings {
    fn push(&mut self, series: u32, value: &str) {
        self.all.push(series);
        let hash = |value: &str| xxh3_64(value.as_bytes());
        let values = &self.values;
        let same = |place: &u32| *values[*place as usize].0 == *value;
        let place = match self.by_value.find(hash(value), same) {
            Some(place) => *place,
            None => {
                let place = values.len() as u32;
                let rehash = |place: &u32| hash(&values[*place as usize].0);
                self.by_value.insert_unique(hash(value), place, rehash);
                self.values.push((value.into(), PostingsBuilder::default()));
                place
            }
        };
        self.values[place as usize].1.push(series);
    }

    fn write<D: Disk>(
        mut self,
        name: Box<str>,
        output: &mut Output<D>,
    ) -> Result<Name, BlockError> {
        drop(self.by_value);
        self.values
            .sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let (count, series) = (self.values.len() as u64, self.all.count());
        let list = output.put_checked(&self.all.finish())?;
        let mut pages = Vec::new();
        let mut page = TermsBuilder::default();
        for (value, postings) in self.values {
            let series = postings.count();
            let bytes = postings.finish();
            let list = if bytes.len() <= LIST_INLINE_MAX {
                List::Inline(&bytes)
            } else {
                List::At(output.put_checked(&bytes)?)
            };
            page.push(&value, &Term { series, list });
            if page.is_full() {
                put_page(&mut page, &mut pages, output)?;
            }
        }
        put_page(&mut page, &mut pages, output)?;
        let pages = output.put_frame(&encode_pages(&pages))?;
        Ok(Name {
            name,
            values: count,
            series,
            pages,
            list,
        })
    }
}

fn put_page<D: Disk>(
    page: &mut TermsBuilder,
    pages: &mut Vec<ValuesPage>,
    output: &mut Output<D>,
) -> Result<(), BlockError> {
    if let Some((first, bytes)) = page.take() {
        let extent: Extent = output.put_frame(&bytes)?;
        pages.push(ValuesPage {
            first: first.into(),
            extent,
        });
    }
    Ok(())
}
