//! Beside a map that is copied as a whole.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum MapOperation {
    Insert(u64, u32),
    Remove(u64),
    Add(u64),
    Share,
}

fn changes() -> impl Strategy<Value = Vec<MapOperation>> {
    let number = 0..2_000_u64;
    let change = prop_oneof![
        6 => (number.clone(), any::<u32>()).prop_map(|(number, value)| MapOperation::Insert(number, value)),
        4 => number.clone().prop_map(MapOperation::Remove),
        4 => number.prop_map(MapOperation::Add),
        1 => Just(MapOperation::Share),
    ];
    prop::collection::vec(change, 0..200)
}

fn same(numbered: &CowPageMap<u32>, map: &BTreeMap<u64, u32>) {
    let all = map.iter().map(|(number, value)| (*number, *value));
    let found = numbered.iter().map(|(number, value)| (number, *value));
    assert_eq!(found.collect::<Vec<_>>(), all.collect::<Vec<_>>());
    assert_eq!((numbered.len(), numbered.is_empty()), (map.len(), map.is_empty()));
    let from = numbered.range_from(700).map(|(number, _)| number);
    assert!(from.eq(map.range(700..).map(|(number, _)| *number)));
}

proptest! {
    #[test]
    fn it_is_a_map_whose_clones_stay_as_they_were(changes in changes()) {
        let mut numbered = CowPageMap::default();
        let mut map = BTreeMap::new();
        let mut shared = Vec::new();
        for change in changes {
            match change {
                MapOperation::Insert(number, value) => {
                    numbered.insert(number, value);
                    map.insert(number, value);
                }
                MapOperation::Remove(number) => prop_assert_eq!(numbered.remove(number), map.remove(&number)),
                MapOperation::Add(number) => {
                    let value: &mut u32 = numbered.get_or_default(number);
                    *value = value.wrapping_add(1);
                    let value = map.entry(number).or_default();
                    *value = value.wrapping_add(1);
                }
                MapOperation::Share => shared.push((numbered.clone(), map.clone())),
            }
        }
        same(&numbered, &map);
        for (numbered, map) in &shared {
            same(numbered, map);
        }
    }
}
