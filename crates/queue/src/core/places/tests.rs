//! Against a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What is done with numbers.
#[derive(Clone, Debug)]
enum Step {
    /// So many numbers are given, of which every `nth` is used.
    Give(u64, u64),
    /// So many of those that are there are forgotten, from the oldest or from the latest.
    Forget(usize, bool),
    /// Everything is made anew from what is there.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..5_000, 1_u64..200).prop_map(|(count, nth)| Step::Give(count, nth)),
        4 => (1_usize..4_000, any::<bool>()).prop_map(|(count, old)| Step::Forget(count, old)),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_number_has_the_place_it_was_given(steps in prop::collection::vec(step(), 1..40)) {
        let (mut places, mut model) = (Places::default(), BTreeMap::new());
        let mut next = 1;
        for step in steps {
            match step {
                Step::Give(count, nth) => {
                    for number in (next..next + count).filter(|number| number % nth == 0) {
                        places.insert(number, (number * 7) as Place);
                        model.insert(number, (number * 7) as Place);
                    }
                    next += count;
                }
                Step::Forget(count, from_the_oldest) => {
                    for _ in 0..count {
                        let gone = match from_the_oldest {
                            true => model.pop_first(),
                            false => model.pop_last(),
                        };
                        gone.into_iter().for_each(|(number, _)| places.remove(number));
                    }
                }
                Step::Restart => {
                    let pairs = model.iter().map(|(number, place)| (*number, *place));
                    places = Places::of(pairs.rev());
                }
            }
            let kept = places.pages.iter().filter(|page| page.tasks < PAGE_TASKS_MIN);
            prop_assert!(kept.count() <= 1, "a page with few tasks is freed");
            let is_past = |number: &u64| Some(number >> PAGE_BITS) < places.latest;
            prop_assert!(places.few.keys().all(is_past), "the latest page is not a map");
        }
        for number in 0..next + 2 {
            prop_assert_eq!(places.get(number), model.get(&number).copied());
        }
    }
}
