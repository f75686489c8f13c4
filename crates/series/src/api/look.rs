//! Which series there are, and what they are called.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Inner, Series};
use crate::core::head::HeadSeries;
use crate::core::promql::LabelMatcher;
use crate::error::SeriesError;
use crate::model::{Labels, METRIC_NAME, TimeMs};

/// Which series somebody asks about: those that one of the selectors takes, with samples in a span of time. Without
/// selectors all of them.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Each a list of matchers that must all hold.
    pub selectors: Vec<Vec<LabelMatcher>>,
    /// No sample before counts.
    pub start: TimeMs,
    /// No sample after counts; inclusive, like `start`.
    pub end: TimeMs,
}

/// Something and how many series have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// A metric, a label's name, or `name=value`.
    pub name: String,
    /// How many.
    pub count: u64,
}

/// What takes how much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// Series.
    pub series: u64,
    /// Different `name=value`.
    pub pairs: u64,
    /// Different names of labels.
    pub names: u64,
    /// Series by metric, the most first.
    pub series_by_metric: Vec<Counted>,
    /// Different values by label.
    pub values_by_name: Vec<Counted>,
    /// Bytes of names and values by label, of all series together.
    pub bytes_by_name: Vec<Counted>,
    /// Series by `name=value`.
    pub series_by_pair: Vec<Counted>,
}

impl Series {
    /// The labels of the series in scope, sorted, at most `limit` of them, and whether there are more.
    ///
    /// # Errors
    /// [`SeriesError::Query`] for a malformed regular expression, and [`SeriesError::Stopping`].
    pub async fn series(
        &self,
        scope: Scope,
        limit: usize,
    ) -> Result<(Vec<Labels>, bool), SeriesError> {
        self.look(move |inner| {
            let found = inner.in_scope(&scope)?;
            Ok(first(found.into_iter().collect(), limit))
        })
        .await
    }

    /// The names of labels of the series in scope, sorted; otherwise as [`Series::series`].
    ///
    /// # Errors
    /// As [`Series::series`].
    pub async fn label_names(
        &self,
        scope: Scope,
        limit: usize,
    ) -> Result<(Vec<String>, bool), SeriesError> {
        self.look(move |inner| {
            let mut names = BTreeSet::new();
            if scope.selectors.is_empty() {
                for shard in inner.shards()? {
                    shard.index.view().names(|name| add(&mut names, name));
                }
            }
            for labels in inner.in_selected(&scope)? {
                labels.iter().for_each(|(name, _)| add(&mut names, name));
            }
            Ok(first(names, limit))
        })
        .await
    }

    /// The values of a label in the series in scope, sorted; otherwise as [`Series::series`].
    ///
    /// # Errors
    /// As [`Series::series`].
    pub async fn label_values(
        &self,
        name: String,
        scope: Scope,
        limit: usize,
    ) -> Result<(Vec<String>, bool), SeriesError> {
        self.look(move |inner| {
            let mut values = BTreeSet::new();
            if scope.selectors.is_empty() {
                for shard in inner.shards()? {
                    let view = shard.index.view();
                    view.values(&name, |value, _| add(&mut values, value));
                }
            }
            for labels in inner.in_selected(&scope)? {
                match labels.get(&name) {
                    "" => {}
                    value => add(&mut values, value),
                }
            }
            Ok(first(values, limit))
        })
        .await
    }

    /// What takes how much, by the `limit` largest of each kind.
    ///
    /// # Errors
    /// [`SeriesError::Stopping`].
    pub async fn cardinality(&self, limit: usize) -> Result<Cardinality, SeriesError> {
        self.look(move |inner| inner.cardinality(limit)).await
    }

    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Inner) -> Result<T, SeriesError> + Send + 'static,
    ) -> Result<T, SeriesError> {
        let inner = self.inner.clone();
        match tokio::task::spawn_blocking(move || look(&inner)).await {
            Ok(found) => found,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(SeriesError::Stopping),
        }
    }
}

impl Inner {
    fn in_scope(&self, scope: &Scope) -> Result<BTreeSet<Labels>, SeriesError> {
        let all = [Vec::new()];
        let selectors = match scope.selectors.is_empty() {
            true => &all[..],
            false => &scope.selectors,
        };
        let mut found = BTreeSet::new();
        for selector in selectors {
            let mut series: Vec<Arc<HeadSeries>> = Vec::new();
            for shard in self.shards()? {
                shard.index.view().select(selector, &mut series);
            }
            let alive = series.into_iter().filter(|series| {
                let span = series.now().span();
                span.is_some_and(|(from, to)| from <= scope.end && to >= scope.start)
            });
            found.extend(alive.map(|series| series.labels.clone()));
        }
        Ok(found)
    }

    /// As [`Inner::in_scope`], nothing when there is no selector.
    fn in_selected(&self, scope: &Scope) -> Result<BTreeSet<Labels>, SeriesError> {
        match scope.selectors.is_empty() {
            true => Ok(BTreeSet::new()),
            false => self.in_scope(scope),
        }
    }

    fn cardinality(&self, limit: usize) -> Result<Cardinality, SeriesError> {
        let mut series = 0;
        // By label: by value how many series.
        let mut labels: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for shard in self.shards()? {
            let view = shard.index.view();
            series += view.len() as u64;
            let mut names = BTreeSet::new();
            view.names(|name| add(&mut names, name));
            for name in names {
                let values = labels.entry(name.clone()).or_default();
                view.values(&name, |value, count| match values.get_mut(value) {
                    Some(so_far) => *so_far += count as u64,
                    None => drop(values.insert(value.to_owned(), count as u64)),
                });
            }
        }
        let counted = |name: &str, count: u64| Counted {
            name: name.to_owned(),
            count,
        };
        let by_name = |count: fn(&str, &BTreeMap<String, u64>) -> u64| {
            let all = labels.iter();
            let all = all.map(|(name, values)| counted(name, count(name, values)));
            largest(all.collect(), limit)
        };
        let pairs = labels.iter().flat_map(|(name, values)| {
            let named = move |(value, count): (&String, &u64)| Counted {
                name: format!("{name}={value}"),
                count: *count,
            };
            values.iter().map(named)
        });
        let metrics = labels.get(METRIC_NAME).into_iter().flatten();
        let metrics = metrics.map(|(name, count)| counted(name, *count));
        Ok(Cardinality {
            series,
            pairs: labels.values().map(|values| values.len() as u64).sum(),
            names: labels.len() as u64,
            series_by_metric: largest(metrics.collect(), limit),
            values_by_name: by_name(|_, values| values.len() as u64),
            bytes_by_name: by_name(|name, values| {
                let bytes =
                    |(value, count): (&String, &u64)| (name.len() + value.len()) as u64 * count;
                values.iter().map(bytes).sum()
            }),
            series_by_pair: largest(pairs.collect(), limit),
        })
    }
}

fn add(all: &mut BTreeSet<String>, one: &str) {
    if !all.contains(one) {
        all.insert(one.to_owned());
    }
}

fn first<T>(all: BTreeSet<T>, limit: usize) -> (Vec<T>, bool) {
    let more = all.len() > limit;
    (all.into_iter().take(limit).collect(), more)
}

/// The largest, those of like size by name.
fn largest(mut all: Vec<Counted>, limit: usize) -> Vec<Counted> {
    all.sort_by(|one, other| {
        let by_count = other.count.cmp(&one.count);
        by_count.then_with(|| one.name.cmp(&other.name))
    });
    all.truncate(limit);
    all
}
