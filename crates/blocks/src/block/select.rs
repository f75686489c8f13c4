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
use crate::core::names::{Name, ValuesPage, decode_values_directory};
use crate::core::pattern::{MatchCandidates, PrefixOrValue, match_candidates};
use crate::core::postings;
use crate::core::terms::{PostingsRef, Term, Terms};

/// Cost of matching one series' labels, in label values matched.
const VALUES_PER_SERIES: u64 = 8;

/// Looking up a value takes about as long as matching so many, which are a page.
const VALUES_PER_LOOKUP: u64 = 64;

impl Block {
    /// The series that all of the matchers take, ascending; with no matchers, every series. A label
    /// that is missing is empty.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    pub fn select(&self, matchers: &[LabelMatcher]) -> Result<Vec<u32>, BlockError> {
        Ok(self.inner.select(matchers)?.iter().collect())
    }

    /// How many series all of the matchers take.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    pub fn count_series(&self, matchers: &[LabelMatcher]) -> Result<u64, BlockError> {
        Ok(self.inner.select(matchers)?.len())
    }

    /// The names of the labels of the series that all of the matchers take, sorted.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    pub fn label_names(&self, matchers: &[LabelMatcher]) -> Result<Vec<Box<str>>, BlockError> {
        let names = self.inner.read_names()?;
        if matchers.is_empty() {
            return Ok(names.iter().map(|name| name.name.clone()).collect());
        }
        let selected = self.inner.select(matchers)?;
        let mut selected_names = Vec::new();
        for name in names.iter() {
            if !self.inner.series_with_label(name)?.is_disjoint(&selected) {
                selected_names.push(name.name.clone());
            }
        }
        Ok(selected_names)
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
        mut visit: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), BlockError> {
        let names = self.inner.read_names()?;
        let Some(name) = find_name(&names, name) else {
            return Ok(());
        };
        let selected = match matchers {
            [] => None,
            matchers => Some(self.inner.select(matchers)?),
        };
        if let Some(selected) = &selected
            && selected.len() * VALUES_PER_SERIES < name.values
        {
            let mut values: BTreeSet<Box<str>> = BTreeSet::new();
            self.for_each_name(selected.iter(), |_, series| {
                let value = series.label(&name.name);
                if !value.is_empty() && !values.contains(value) {
                    values.insert(value.into());
                }
            })?;
            for value in &values {
                if visit(value).is_break() {
                    break;
                }
            }
            return Ok(());
        }
        self.inner.visit_values(name, &MatchCandidates::Unbounded, |value, term, sealed| {
            let is_selected = match &selected {
                None => true,
                Some(selected) => {
                    let mut postings = RoaringBitmap::new();
                    sealed.add_postings(&term, &mut postings)?;
                    !postings.is_disjoint(selected)
                }
            };
            Ok(if is_selected { visit(value) } else { ControlFlow::Continue(()) })
        })
    }

    /// The values of a label, sorted, with how many series have each.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] or [`BlockError::Io`].
    pub fn value_figures(&self, name: &str) -> Result<Vec<(Box<str>, u32)>, BlockError> {
        let names = self.inner.read_names()?;
        let Some(name) = find_name(&names, name) else {
            return Ok(Vec::new());
        };
        let mut figures = Vec::new();
        self.inner.visit_values(name, &MatchCandidates::Unbounded, |value, term, _| {
            figures.push((value.into(), term.series));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(figures)
    }
}

fn find_name<'names>(names: &'names [Name], name: &str) -> Option<&'names Name> {
    let index = names.binary_search_by(|other| (*other.name).cmp(name));
    index.ok().map(|at| &names[at])
}

/// Cache key of matchers: equal only for equal matchers.
fn matchers_key(matchers: &[&LabelMatcher]) -> Box<str> {
    let mut text = String::new();
    for matcher in matchers {
        let matcher = matcher.matcher();
        write!(text, "{:?}{:?}{:?}", matcher.name, matcher.op, matcher.value)
            .expect("a string takes any text");
    }
    text.into()
}

fn is_negative(matcher: &LabelMatcher) -> bool {
    matches!(matcher.matcher().op, MatchOp::NotEqual | MatchOp::NotMatches)
}

impl BlockInner {
    fn all_series(&self) -> RoaringBitmap {
        let mut series = RoaringBitmap::new();
        series.insert_range(0..self.meta.series as u32);
        series
    }

    fn select(&self, matchers: &[LabelMatcher]) -> Result<Arc<RoaringBitmap>, BlockError> {
        let names = self.read_names()?;
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
            let values = find_name(&names, &matcher.matcher().name).map_or(0, |name| name.values);
            order.push((class, values, matcher));
        }
        order.sort_by_key(|(class, values, _)| (*class, *values));
        let order: Vec<&LabelMatcher> = order.into_iter().map(|(.., matcher)| matcher).collect();
        let key = self.cache_key(CacheItem::Selected(matchers_key(&order)));
        self.cache.get_or_load(key, || {
            let mut selected = self.all_series();
            for matcher in &order {
                if selected.is_empty() {
                    break;
                }
                self.retain_matching(
                    &mut selected,
                    matcher,
                    find_name(&names, &matcher.matcher().name),
                )?;
            }
            let size_bytes = selected.serialized_size();
            Ok((selected, size_bytes))
        })
    }

    /// Retains those series of `selected` that a matcher selects.
    fn retain_matching(
        &self,
        selected: &mut RoaringBitmap,
        matcher: &LabelMatcher,
        name: Option<&Name>,
    ) -> Result<(), BlockError> {
        let matches_missing = matcher.matches("");
        let Some(name) = name else {
            if !matches_missing {
                selected.clear();
            }
            return Ok(());
        };
        let is_regex = matches!(matcher.matcher().op, MatchOp::Matches | MatchOp::NotMatches);
        if is_regex && selected.len() * VALUES_PER_SERIES < name.values {
            return self.retain_by_labels(selected, matcher);
        }
        let matching = self.series_by_value(matcher, name)?;
        match (is_negative(matcher), matches_missing) {
            (false, false) => *selected &= &*matching,
            (false, true) => *selected -= self.series_with_label(name)? - &*matching,
            (true, true) => *selected -= &*matching,
            (true, false) => {
                *selected &= self.series_with_label(name)?;
                *selected -= &*matching;
            }
        }
        Ok(())
    }

    fn retain_by_labels(
        &self,
        selected: &mut RoaringBitmap,
        matcher: &LabelMatcher,
    ) -> Result<(), BlockError> {
        let mut matching = RoaringBitmap::new();
        for series in selected.iter() {
            let (page, index) = self.find_page(series)?;
            if matcher.matches(page.label(index, &matcher.matcher().name)) {
                matching.insert(series);
            }
        }
        *selected = matching;
        Ok(())
    }

    /// The series that have a label.
    fn series_with_label(&self, name: &Name) -> Result<RoaringBitmap, BlockError> {
        let end = self.meta.series as u32;
        self.file
            .read_checked(name.postings, DamageExtent::Index, |bytes| postings::decode(bytes, end))
    }

    /// The series whose value of a label equals the matcher's value or matches its pattern,
    /// even if the matcher is negative; never those without the label.
    fn series_by_value(
        &self,
        matcher: &LabelMatcher,
        name: &Name,
    ) -> Result<Arc<RoaringBitmap>, BlockError> {
        let exact_value =
            |value: &str| PrefixOrValue { bytes: value.as_bytes().to_vec(), is_exact: true };
        let candidates = match (matcher.matcher().op, matcher.literals()) {
            (MatchOp::Equal | MatchOp::NotEqual, _) => {
                MatchCandidates::Only(vec![exact_value(&matcher.matcher().value)])
            }
            // A scan of all values takes less time than so many look-ups.
            (_, Some(values)) if values.len() as u64 > name.values / VALUES_PER_LOOKUP => {
                MatchCandidates::Unbounded
            }
            (_, Some(values)) => {
                MatchCandidates::Only(values.iter().map(|value| exact_value(value)).collect())
            }
            (_, None) => match_candidates(&matcher.matcher().value),
        };
        let sign = match matcher.matcher().op {
            MatchOp::Matches | MatchOp::NotMatches => '~',
            MatchOp::Equal | MatchOp::NotEqual => '=',
        };
        let key = format!("{:?}{sign}{}", matcher.matcher().name, matcher.matcher().value);
        self.cache.get_or_load(self.cache_key(CacheItem::Selected(key.into())), || {
            let mut matching = RoaringBitmap::new();
            if candidates == MatchCandidates::All {
                matching = self.series_with_label(name)?;
            } else {
                let is_matching = |value: &str| matcher.matches(value) != is_negative(matcher);
                self.visit_values(name, &candidates, |value, term, sealed| {
                    if is_matching(value) {
                        sealed.add_postings(&term, &mut matching)?;
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
            }
            let size_bytes = matching.serialized_size();
            Ok((matching, size_bytes))
        })
    }

    fn add_postings(&self, term: &Term<'_>, target: &mut RoaringBitmap) -> Result<(), BlockError> {
        let end = self.meta.series as u32;
        match term.postings {
            PostingsRef::Inline(bytes) => postings::decode_into(bytes, end, target)
                .map_err(|error| self.file.malformed(0, error)),
            PostingsRef::At(extent) => {
                self.file.read_checked(extent, DamageExtent::Index, |bytes| {
                    postings::decode_into(bytes, end, target)
                })
            }
        }
    }

    /// Calls `visit` with every value of a label that is among the candidates, perhaps twice, and
    /// perhaps with others, until it returns `Break`.
    fn visit_values(
        &self,
        name: &Name,
        candidates: &MatchCandidates,
        mut visit: impl FnMut(&str, Term<'_>, &Self) -> Result<ControlFlow<()>, BlockError>,
    ) -> Result<(), BlockError> {
        let key = self.cache_key(CacheItem::ValuesDirectory(name.pages.offset));
        let pages = self.cache.get_or_load(key, || {
            let pages = self.file.read_frame(
                name.pages,
                "a directory of label values",
                decode_values_directory,
            )?;
            let bytes = |page: &ValuesPage| size_of::<ValuesPage>() + page.first.len();
            let size_bytes = pages.iter().map(bytes).sum();
            Ok((pages, size_bytes))
        })?;
        let MatchCandidates::Only(places) = candidates else {
            for page in pages.iter() {
                if self.visit_page_values(page, None, &mut visit)?.is_break() {
                    break;
                }
            }
            return Ok(());
        };
        for candidate in places {
            // The page before the first one that begins above the candidate may contain it.
            let first = pages.partition_point(|page| page.first.as_bytes() <= &*candidate.bytes);
            for page in &pages[first.saturating_sub(1)..] {
                let first_value = page.first.as_bytes();
                if first_value > &*candidate.bytes
                    && (candidate.is_exact || !first_value.starts_with(&candidate.bytes))
                {
                    break;
                }
                if self.visit_page_values(page, Some(candidate), &mut visit)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn visit_page_values(
        &self,
        page: &ValuesPage,
        candidate: Option<&PrefixOrValue>,
        visit: &mut impl FnMut(&str, Term<'_>, &Self) -> Result<ControlFlow<()>, BlockError>,
    ) -> Result<ControlFlow<()>, BlockError> {
        let extent = page.extent;
        let bytes =
            self.cache.get_or_load(self.cache_key(CacheItem::Values(extent.offset)), || {
                let bytes = self
                    .file
                    .read_frame(extent, "a page of label values", |bytes| Ok(bytes.to_vec()))?;
                let size_bytes = bytes.len();
                Ok((bytes, size_bytes))
            })?;
        let malformed = |error: DecodeError| self.file.malformed(extent.offset, error);
        let mut terms = Terms::new(&bytes);
        while let Some((value, term)) = terms.next_term().map_err(malformed)? {
            let is_candidate = match candidate {
                None => true,
                Some(place) if place.is_exact => value.as_bytes() == place.bytes,
                Some(place) => value.as_bytes().starts_with(&place.bytes),
            };
            if is_candidate && visit(value, term, self)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
