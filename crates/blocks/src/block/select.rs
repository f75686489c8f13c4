//! Selects the series of a block by matchers of labels.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use egret_base::codec::DecodeError;
use egret_metrics_model::{LabelMatcher, METRIC_NAME, MatchOp};
use roaring::RoaringBitmap;

use super::cache::CacheItem;
use super::error::{BlockError, DamageExtent};
use super::{Block, BlockInner};
use crate::core::names::{Name, ValuesPage, decode_pages};
use crate::core::pattern::{Places, PrefixOrValue, places};
use crate::core::postings;
use crate::core::terms::{List, Term, Terms};

/// Matching the labels of a series takes about as long as matching so many values of a label.
const VALUES_PER_SERIES: u64 = 8;

/// Looking up a value takes about as long as matching so many, which are a page.
const VALUES_PER_PLACE: u64 = 64;

impl Block {
    /// The series that all of the matchers take, ascending; with no matchers, every series. A label
    /// that is missing is empty.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    pub fn select(&self, matchers: &[LabelMatcher]) -> Result<Vec<u32>, BlockError> {
        Ok(self.sealed.select(matchers)?.iter().collect())
    }

    /// How many series all of the matchers take.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    pub fn count(&self, matchers: &[LabelMatcher]) -> Result<u64, BlockError> {
        Ok(self.sealed.select(matchers)?.len())
    }

    /// The names of the labels of the series that all of the matchers take, sorted.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    pub fn label_names(&self, matchers: &[LabelMatcher]) -> Result<Vec<Box<str>>, BlockError> {
        let names = self.sealed.names()?;
        if matchers.is_empty() {
            return Ok(names.iter().map(|name| name.name.clone()).collect());
        }
        let selected = self.sealed.select(matchers)?;
        let mut found = Vec::new();
        for name in names.iter() {
            if !self.sealed.having(name)?.is_disjoint(&selected) {
                found.push(name.name.clone());
            }
        }
        Ok(found)
    }

    /// Calls `visit` with the values of a label in the series that all matchers select, sorted,
    /// until it returns `Break`.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    pub fn label_values(
        &self,
        name: &str,
        matchers: &[LabelMatcher],
        mut tell: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), BlockError> {
        let names = self.sealed.names()?;
        let Some(name) = find(&names, name) else {
            return Ok(());
        };
        let selected = match matchers {
            [] => None,
            matchers => Some(self.sealed.select(matchers)?),
        };
        if let Some(selected) = &selected
            && selected.len() * VALUES_PER_SERIES < name.values
        {
            let mut values: BTreeSet<Box<str>> = BTreeSet::new();
            self.names(selected.iter(), |_, series| {
                let value = series.label(&name.name);
                if !value.is_empty() && !values.contains(value) {
                    values.insert(value.into());
                }
            })?;
            for value in &values {
                if tell(value).is_break() {
                    break;
                }
            }
            return Ok(());
        }
        self.sealed
            .each_value(name, &Places::Anywhere, |value, term, sealed| {
                let is_selected = match &selected {
                    None => true,
                    Some(selected) => {
                        let mut having = RoaringBitmap::new();
                        sealed.add_list(&term, &mut having)?;
                        !having.is_disjoint(selected)
                    }
                };
                Ok(if is_selected {
                    tell(value)
                } else {
                    ControlFlow::Continue(())
                })
            })
    }

    /// The values of a label, sorted, with how many series have each.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    pub fn value_figures(&self, name: &str) -> Result<Vec<(Box<str>, u32)>, BlockError> {
        let names = self.sealed.names()?;
        let Some(name) = find(&names, name) else {
            return Ok(Vec::new());
        };
        let mut figures = Vec::new();
        self.sealed
            .each_value(name, &Places::Anywhere, |value, term, _| {
                figures.push((value.into(), term.series));
                Ok(ControlFlow::Continue(()))
            })?;
        Ok(figures)
    }
}

fn find<'names>(names: &'names [Name], name: &str) -> Option<&'names Name> {
    let at = names.binary_search_by(|other| (*other.name).cmp(name));
    at.ok().map(|at| &names[at])
}

/// Cache key of matchers: equal only for equal matchers.
fn written(matchers: &[&LabelMatcher]) -> Box<str> {
    let mut text = String::new();
    for matcher in matchers {
        let matcher = matcher.matcher();
        write!(
            text,
            "{:?}{:?}{:?}",
            matcher.name, matcher.op, matcher.value
        )
        .expect("a string takes any text");
    }
    text.into()
}

fn is_negative(matcher: &LabelMatcher) -> bool {
    matches!(
        matcher.matcher().op,
        MatchOp::NotEqual | MatchOp::NotMatches
    )
}

impl BlockInner {
    fn all(&self) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        all.insert_range(0..self.meta.series as u32);
        all
    }

    fn select(&self, matchers: &[LabelMatcher]) -> Result<Arc<RoaringBitmap>, BlockError> {
        let names = self.names()?;
        // Matchers that are cheap to look up and select few series come first; scans of values are
        // deferred until it is known how many series remain.
        let mut order: Vec<(u8, u64, &LabelMatcher)> = Vec::new();
        for matcher in matchers {
            let op = matcher.matcher().op;
            let class = match (op, matcher.matches("")) {
                (MatchOp::Equal, false) if &*matcher.matcher().name == METRIC_NAME => 1,
                (MatchOp::Equal, false) => 0,
                (MatchOp::Equal | MatchOp::NotEqual, _) => 2,
                (MatchOp::Matches | MatchOp::NotMatches, _) => 3,
            };
            let values = find(&names, &matcher.matcher().name).map_or(0, |name| name.values);
            order.push((class, values, matcher));
        }
        order.sort_by_key(|(class, values, _)| (*class, *values));
        let order: Vec<&LabelMatcher> = order.into_iter().map(|(.., matcher)| matcher).collect();
        let key = self.key(CacheItem::Selected(written(&order)));
        self.cache.get(key, || {
            let mut selected = self.all();
            for matcher in &order {
                if selected.is_empty() {
                    break;
                }
                self.narrow(
                    &mut selected,
                    matcher,
                    find(&names, &matcher.matcher().name),
                )?;
            }
            let size_bytes = selected.serialized_size();
            Ok((selected, size_bytes))
        })
    }

    /// Retains those series of `selected` that a matcher selects.
    fn narrow(
        &self,
        selected: &mut RoaringBitmap,
        matcher: &LabelMatcher,
        name: Option<&Name>,
    ) -> Result<(), BlockError> {
        let takes_missing = matcher.matches("");
        let Some(name) = name else {
            if !takes_missing {
                selected.clear();
            }
            return Ok(());
        };
        let is_regex = matches!(matcher.matcher().op, MatchOp::Matches | MatchOp::NotMatches);
        if is_regex && selected.len() * VALUES_PER_SERIES < name.values {
            return self.narrow_one_by_one(selected, matcher);
        }
        let named = self.named(matcher, name)?;
        match (is_negative(matcher), takes_missing) {
            (false, false) => *selected &= &*named,
            (false, true) => *selected -= self.having(name)? - &*named,
            (true, true) => *selected -= &*named,
            (true, false) => {
                *selected &= self.having(name)?;
                *selected -= &*named;
            }
        }
        Ok(())
    }

    fn narrow_one_by_one(
        &self,
        selected: &mut RoaringBitmap,
        matcher: &LabelMatcher,
    ) -> Result<(), BlockError> {
        let mut taken = RoaringBitmap::new();
        for series in selected.iter() {
            let (page, place) = self.page(series)?;
            if matcher.matches(page.label(place, &matcher.matcher().name)) {
                taken.insert(series);
            }
        }
        *selected = taken;
        Ok(())
    }

    /// The series that have a label.
    fn having(&self, name: &Name) -> Result<RoaringBitmap, BlockError> {
        let end = self.meta.series as u32;
        self.file.checked(name.list, DamageExtent::Index, |bytes| {
            postings::decode(bytes, end)
        })
    }

    /// The series whose value of a label equals the matcher's value or matches its pattern,
    /// even if the matcher is negative; never those without the label.
    fn named(&self, matcher: &LabelMatcher, name: &Name) -> Result<Arc<RoaringBitmap>, BlockError> {
        let whole = |value: &str| PrefixOrValue {
            bytes: value.as_bytes().to_vec(),
            is_whole: true,
        };
        let places = match (matcher.matcher().op, matcher.literals()) {
            (MatchOp::Equal | MatchOp::NotEqual, _) => {
                Places::Some(vec![whole(&matcher.matcher().value)])
            }
            // A scan of all values takes less time than so many look-ups.
            (_, Some(values)) if values.len() as u64 > name.values / VALUES_PER_PLACE => {
                Places::Anywhere
            }
            (_, Some(values)) => Places::Some(values.iter().map(|value| whole(value)).collect()),
            (_, None) => places(&matcher.matcher().value),
        };
        let sign = match matcher.matcher().op {
            MatchOp::Matches | MatchOp::NotMatches => '~',
            MatchOp::Equal | MatchOp::NotEqual => '=',
        };
        let key = format!(
            "{:?}{sign}{}",
            matcher.matcher().name,
            matcher.matcher().value
        );
        self.cache
            .get(self.key(CacheItem::Selected(key.into())), || {
                let mut named = RoaringBitmap::new();
                if places == Places::Everywhere {
                    named = self.having(name)?;
                } else {
                    let is_wanted = |value: &str| matcher.matches(value) != is_negative(matcher);
                    self.each_value(name, &places, |value, term, sealed| {
                        if is_wanted(value) {
                            sealed.add_list(&term, &mut named)?;
                        }
                        Ok(ControlFlow::Continue(()))
                    })?;
                }
                let size_bytes = named.serialized_size();
                Ok((named, size_bytes))
            })
    }

    fn add_list(&self, term: &Term<'_>, into: &mut RoaringBitmap) -> Result<(), BlockError> {
        let end = self.meta.series as u32;
        match term.list {
            List::Inline(bytes) => postings::decode_into(bytes, end, into)
                .map_err(|error| self.file.malformed(0, error)),
            List::At(extent) => self.file.checked(extent, DamageExtent::Index, |bytes| {
                postings::decode_into(bytes, end, into)
            }),
        }
    }

    /// Calls `visit` with every value of a label that is among the candidates, perhaps twice, and
    /// perhaps with others, until it returns `Break`.
    fn each_value(
        &self,
        name: &Name,
        places: &Places,
        mut each: impl FnMut(&str, Term<'_>, &Self) -> Result<ControlFlow<()>, BlockError>,
    ) -> Result<(), BlockError> {
        let key = self.key(CacheItem::ValuesDirectory(name.pages.offset));
        let pages = self.cache.get(key, || {
            let pages = self
                .file
                .frame(name.pages, "a directory of label values", decode_pages)?;
            let bytes = |page: &ValuesPage| size_of::<ValuesPage>() + page.first.len();
            let size_bytes = pages.iter().map(bytes).sum();
            Ok((pages, size_bytes))
        })?;
        let Places::Some(places) = places else {
            for page in pages.iter() {
                if self.each_value_of(page, None, &mut each)?.is_break() {
                    break;
                }
            }
            return Ok(());
        };
        for place in places {
            // The page before the first one that begins above the candidate may contain it.
            let first = pages.partition_point(|page| page.first.as_bytes() <= &*place.bytes);
            for page in &pages[first.saturating_sub(1)..] {
                let begins = page.first.as_bytes();
                if begins > &*place.bytes && (place.is_whole || !begins.starts_with(&place.bytes)) {
                    break;
                }
                if self.each_value_of(page, Some(place), &mut each)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn each_value_of(
        &self,
        page: &ValuesPage,
        place: Option<&PrefixOrValue>,
        each: &mut impl FnMut(&str, Term<'_>, &Self) -> Result<ControlFlow<()>, BlockError>,
    ) -> Result<ControlFlow<()>, BlockError> {
        let extent = page.extent;
        let bytes = self
            .cache
            .get(self.key(CacheItem::Values(extent.offset)), || {
                let bytes = self
                    .file
                    .frame(extent, "a page of label values", |bytes| Ok(bytes.to_vec()))?;
                let size_bytes = bytes.len();
                Ok((bytes, size_bytes))
            })?;
        let malformed = |error: DecodeError| self.file.malformed(extent.offset, error);
        let mut terms = Terms::new(&bytes);
        while let Some((value, term)) = terms.take().map_err(malformed)? {
            let is_there = match place {
                None => true,
                Some(place) if place.is_whole => value.as_bytes() == place.bytes,
                Some(place) => value.as_bytes().starts_with(&place.bytes),
            };
            if is_there && each(value, term, self)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
