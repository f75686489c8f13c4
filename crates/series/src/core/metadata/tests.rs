//! What is said of metrics, kept and let go.

use super::*;

fn description<'a>(metric: &'a str, help: &'a str) -> Description<'a> {
    Description { metric, kind: MetricKind::Counter, unit: "", help }
}

fn names(store: &MetadataStore, limit: usize, per_metric: usize) -> Vec<String> {
    let listed = store.list(None, limit, per_metric);
    let one = |(name, variants): &(Arc<str>, Vec<Arc<MetadataEntry>>)| {
        let helps: Vec<&str> = variants.iter().map(|one| one.description().help).collect();
        format!("{name}: {}", helps.join(", "))
    };
    listed.iter().map(one).collect()
}

#[test]
fn what_is_said_twice_is_there_once() {
    let mut store = MetadataStore::new(10_000);
    let first = store.add(description("b", "one"), 1).expect("room");
    let again = store.add(description("b", "one"), 2).expect("room");
    assert!(Arc::ptr_eq(&first, &again));
    store.add(description("b", "two"), 3);
    store.add(description("a", "one"), 3);
    assert_eq!(names(&store, 9, 9), ["a: one", "b: one, two"]);
    assert_eq!(names(&store, 1, 9), ["a: one"]);
    assert_eq!(names(&store, 9, 1), ["a: one", "b: one"]);
    assert_eq!(store.list(Some("b"), 9, 9)[0].1.len(), 2);
    assert!(store.list(Some("c"), 9, 9).is_empty());
}

#[test]
fn empty_descriptions_are_not_stored() {
    let mut store = MetadataStore::new(10_000);
    assert!(store.add(Description::default(), 1).is_none());
    let unknown = Description { metric: "a", ..Description::default() };
    assert!(store.add(unknown, 1).is_none());
    assert_eq!((store.bytes(), store.refused_count()), (0, 0));
}

#[test]
fn unused_metadata_is_evicted_for_new() {
    let room_for_two = 2 * description("a", "one").size_bytes();
    let mut store = MetadataStore::new(room_for_two);
    let holder = store.add(description("a", "one"), 0).expect("room");
    store.add(description("b", "one"), 0).expect("room");
    assert!(store.add(description("c", "one"), 1).is_none());
    assert_eq!(store.refused_count(), 1);
    assert!(store.add(description("c", "one"), RETENTION_MS + SWEEP_INTERVAL_MS).is_some());
    assert_eq!(names(&store, 9, 9), ["a: one", "c: one"]);
    assert_eq!(store.bytes(), room_for_two);
    drop(holder);
    assert!(store.add(description("d", "one"), 2 * RETENTION_MS).is_some());
    assert_eq!(names(&store, 9, 9), ["c: one", "d: one"]);
}

#[test]
fn of_one_metric_not_everything_is_kept() {
    let mut store = MetadataStore::new(1 << 20);
    for number in 0..=VARIANTS_MAX {
        store.add(description("a", &number.to_string()), 0);
    }
    assert_eq!(store.list(Some("a"), 9, 1_000)[0].1.len(), VARIANTS_MAX);
    assert_eq!(store.refused_count(), 1);
}

#[test]
fn series_of_a_histogram_are_one_metric() {
    let metric = |name, kind| Description::for_series(name, kind, "", "").metric;
    assert_eq!(metric("a_bucket", MetricKind::Histogram), "a");
    assert_eq!(metric("a_sum", MetricKind::Summary), "a");
    assert_eq!(metric("a_gcount", MetricKind::GaugeHistogram), "a");
    assert_eq!(metric("a_count", MetricKind::Gauge), "a_count");
    assert_eq!(metric("a_total", MetricKind::Counter), "a_total");
}
