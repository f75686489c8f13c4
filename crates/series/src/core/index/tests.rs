//! Against plain sets.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use proptest::prelude::*;

use super::*;

type Pairs = BTreeMap<String, String>;

fn bytes(pairs: &Pairs) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in pairs {
        bytes.extend_from_slice(format!("{name}={value};").as_bytes());
    }
    bytes
}

fn each(pairs: &Pairs) -> impl Iterator<Item = (&str, &str)> {
    pairs.iter().map(|(name, value)| (&**name, &**value))
}

fn check(index: &Index, model: &BTreeMap<u32, Pairs>, hash: &impl Fn(&[u8]) -> u64) {
    assert_eq!(index.len(), model.len());
    let mut names: BTreeMap<&str, BTreeMap<&str, Vec<u32>>> = BTreeMap::new();
    for (number, pairs) in model {
        let labels = bytes(pairs);
        assert_eq!(index.find(hash(&labels), &labels), Some(*number));
        for (name, value) in each(pairs) {
            names
                .entry(name)
                .or_default()
                .entry(value)
                .or_default()
                .push(*number);
        }
    }
    assert!(index.names().eq(names.keys().copied()));
    for (name, values) in &names {
        let expected = values
            .iter()
            .map(|(value, numbers)| (*value, numbers.as_slice()));
        assert!(index.values(name).eq(expected));
        for (value, numbers) in values {
            assert_eq!(index.with(name, value), numbers);
        }
    }
    let all = model.iter().map(|(number, pairs)| (*number, bytes(pairs)));
    assert!(
        index
            .all()
            .map(|(number, labels)| (number, labels.to_vec()))
            .eq(all)
    );
}

proptest! {
    #[test]
    fn it_knows_every_series_by_every_label(
        series in prop::collection::vec(prop::collection::btree_map("[ab]", "[xyz]", 1..3), 1..60),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let state = RandomState::new();
        let hash = |labels: &[u8]| state.hash_one(labels);
        let (mut index, mut model) = (Index::default(), BTreeMap::new());
        for pairs in series {
            let labels = bytes(&pairs);
            if index.find(hash(&labels), &labels).is_none() {
                let number = index.next();
                index.insert(number, &labels, each(&pairs), hash);
                model.insert(number, pairs);
            }
        }
        check(&index, &model, &hash);
        for one in gone {
            let number = one.index(index.next() as usize) as u32;
            if let Some(pairs) = model.remove(&number) {
                index.remove(number, each(&pairs), hash);
            }
        }
        check(&index, &model, &hash);
    }

    #[test]
    fn lists_meet_as_sets_do(
        one in prop::collection::btree_set(0_u32..500, 0..200),
        other in prop::collection::btree_set(0_u32..500, 0..20),
    ) {
        let (first, second): (Vec<_>, Vec<_>) = (one.iter().copied().collect(), other.iter().copied().collect());
        let both: Vec<u32> = one.intersection(&other).copied().collect();
        prop_assert_eq!(intersect(&first, &second), both.clone());
        prop_assert_eq!(intersect(&second, &first), both);
        let any: BTreeSet<u32> = one.union(&other).copied().collect();
        prop_assert!(union([&first[..], &second[..]].into_iter()).into_iter().eq(any));
    }
}
