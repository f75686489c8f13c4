//! Against a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What is done with numbers.
#[derive(Clone, Debug)]
enum IndexOperation {
    /// So many numbers are given, of which every `nth` is used.
    Give(u64, u64),
    /// So many of those that are there are forgotten, from the oldest or from the latest.
    Forget(usize, bool),
    /// Everything is made anew from what is there.
    Restart,
}

fn step() -> impl Strategy<Value = IndexOperation> {
    prop_oneof![
        4 => (1_u64..5_000, 1_u64..200).prop_map(|(count, nth)| IndexOperation::Give(count, nth)),
        4 => (1_usize..4_000, any::<bool>()).prop_map(|(count, old)| IndexOperation::Forget(count, old)),
        1 => Just(IndexOperation::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_number_has_the_place_it_was_given(steps in prop::collection::vec(step(), 1..40)) {
        let (mut places, mut model) = (TaskIndex::default(), BTreeMap::new());
        let mut next = 1;
        for step in steps {
            match step {
                IndexOperation::Give(count, nth) => {
                    for number in (next..next + count).filter(|number| number % nth == 0) {
                        places.insert(number, (number * 7) as SlotIndex);
                        model.insert(number, (number * 7) as SlotIndex);
                    }
                    next += count;
                }
                IndexOperation::Forget(count, from_the_oldest) => {
                    for _ in 0..count {
                        let gone = if from_the_oldest { model.pop_first() } else { model.pop_last() };
                        gone.into_iter().for_each(|(number, _)| places.remove(number));
                    }
                }
                IndexOperation::Restart => {
                    let pairs = model.iter().map(|(number, place)| (*number, *place));
                    places = TaskIndex::from_numbers(pairs.rev());
                }
            }
            let kept = places.pages.iter().filter(|page| page.tasks < PAGE_TASKS_MIN);
            prop_assert!(kept.count() <= 1, "a page with few tasks is freed");
            let is_past = |number: &u64| Some(number >> PAGE_BITS) < places.latest;
            prop_assert!(places.sparse.keys().all(is_past), "the latest page is not a map");
        }
        for number in 0..next + 2 {
            prop_assert_eq!(places.get(number), model.get(&number).copied());
        }
    }
}
