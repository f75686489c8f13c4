//! Against a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn labels(n: u16) -> Labels {
    Labels::new([("__name__", "m"), ("n", &*n.to_string())])
}

fn place(number: u64) -> SeriesRef {
    SeriesRef { shard: 3, number }
}

proptest! {
    #[test]
    fn what_was_added_is_found_until_it_is_taken_out(
        steps in prop::collection::vec((0_u8..5, 0_u16..40), 0..200),
    ) {
        let mut known = SeriesKeyTable::new(7);
        let mut model: BTreeMap<Vec<u8>, SeriesRef> = BTreeMap::new();
        let mut next = 0;
        for (what, n) in steps {
            let labels = labels(n);
            let own = labels.as_key().as_bytes().to_vec();
            match what {
                0 | 1 if !model.contains_key(&own) => {
                    known.add(labels, place(next));
                    model.insert(own, place(next));
                    next += 1;
                }
                2 => {
                    let alias = format!("alias {n}").into_bytes();
                    known.add_alias(&labels, &alias);
                    if let Some(place) = model.get(&own).copied() {
                        model.insert(alias, place);
                    }
                }
                3 => {
                    let gone = u64::from(n) / 2;
                    let mut from = 0;
                    while from < known.capacity() {
                        from = known.remove_some(from, |place| place.number == gone);
                    }
                    model.retain(|_, place| place.number != gone);
                }
                _ => {}
            }
        }
        for n in 0..40 {
            for bytes in [labels(n).as_key().as_bytes(), format!("alias {n}").as_bytes()] {
                let found = known.find(bytes).map(|id| known.place(id));
                prop_assert_eq!(found, model.get(bytes).copied());
            }
        }
        let series = model.keys().filter(|key| !key.starts_with(b"alias")).count();
        prop_assert_eq!(known.len(), series);
    }
}

#[test]
fn the_key_after_another_is_remembered_and_never_one_that_is_gone() {
    let mut known = SeriesKeyTable::new(7);
    for n in 0..3 {
        known.add(labels(n), place(u64::from(n)));
    }
    let id = |known: &SeriesKeyTable, n: u16| {
        known
            .find(labels(n).as_key().as_bytes())
            .expect("it is there")
    };
    let (first, second) = (id(&known, 0), id(&known, 1));
    assert!(known.after(first).is_none());
    known.note_after(first, second);
    let (next, bytes) = known.after(first).expect("it was noted");
    assert_eq!((next, bytes), (second, labels(1).as_key().as_bytes()));
    known.remove_some(0, |place| place.number == 1);
    assert!(known.after(first).is_none());
}

#[test]
fn a_series_has_only_so_many_aliases() {
    let mut known = SeriesKeyTable::new(7);
    known.add(labels(0), place(0));
    for alias in 0..100_u8 {
        known.add_alias(&labels(0), &[alias]);
    }
    let remembered = (0..100_u8).filter(|alias| known.find(&[*alias]).is_some());
    assert_eq!(remembered.count(), usize::from(ALIASES_MAX));
}
