//! Against a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn labels(n: u16) -> Labels {
    Labels::new([("__name__", "m"), ("n", &*n.to_string())])
}

fn series_ref(number: u64) -> SeriesRef {
    SeriesRef { shard: 3, number }
}

proptest! {
    #[test]
    fn what_was_added_is_found_until_it_is_taken_out(
        steps in prop::collection::vec((0_u8..5, 0_u16..40), 0..200),
    ) {
        let mut keys = SeriesKeyTable::new(7);
        let mut model: BTreeMap<Vec<u8>, SeriesRef> = BTreeMap::new();
        let mut next = 0;
        for (what, n) in steps {
            let labels = labels(n);
            let own_key = labels.as_key().as_bytes().to_vec();
            match what {
                0 | 1 if !model.contains_key(&own_key) => {
                    keys.add_series(labels, series_ref(next));
                    model.insert(own_key, series_ref(next));
                    next += 1;
                }
                2 => {
                    let alias = format!("alias {n}").into_bytes();
                    keys.add_alias(&labels, &alias);
                    if let Some(place) = model.get(&own_key).copied() {
                        model.insert(alias, place);
                    }
                }
                3 => {
                    let removed_number = u64::from(n) / 2;
                    let mut from = 0;
                    while from < keys.capacity() {
                        from = keys.remove_from_page(from, |place| place.number == removed_number);
                    }
                    model.retain(|_, place| place.number != removed_number);
                }
                _ => {}
            }
        }
        for n in 0..40 {
            for bytes in [labels(n).as_key().as_bytes(), format!("alias {n}").as_bytes()] {
                let found = keys.find(bytes).map(|id| keys.series_ref(id));
                prop_assert_eq!(found, model.get(bytes).copied());
            }
        }
        let series = model.keys().filter(|key| !key.starts_with(b"alias")).count();
        prop_assert_eq!(keys.len(), series);
    }
}

#[test]
fn the_key_after_another_is_remembered_and_never_one_that_is_gone() {
    let mut keys = SeriesKeyTable::new(7);
    for n in 0..3 {
        keys.add_series(labels(n), series_ref(u64::from(n)));
    }
    let id = |known: &SeriesKeyTable, n: u16| {
        known.find(labels(n).as_key().as_bytes()).expect("it is there")
    };
    let (first, second) = (id(&keys, 0), id(&keys, 1));
    assert!(keys.successor(first).is_none());
    keys.set_successor(first, second);
    let (next, bytes) = keys.successor(first).expect("it was noted");
    assert_eq!((next, bytes), (second, labels(1).as_key().as_bytes()));
    keys.remove_from_page(0, |place| place.number == 1);
    assert!(keys.successor(first).is_none());
}

#[test]
fn a_series_has_only_so_many_aliases() {
    let mut keys = SeriesKeyTable::new(7);
    keys.add_series(labels(0), series_ref(0));
    for alias in 0..100_u8 {
        keys.add_alias(&labels(0), &[alias]);
    }
    let remembered = (0..100_u8).filter(|alias| keys.find(&[*alias]).is_some());
    assert_eq!(remembered.count(), usize::from(ALIASES_MAX));
}
