//! What is written is read, and nothing else is.

use proptest::prelude::*;

use super::*;

fn columns(samples: &[(u64, TimeMs, u64)]) -> SampleBatch {
    let mut columns = SampleBatch::default();
    for (series, time_ms, value) in samples {
        columns.push(*series, *time_ms, f64::from_bits(*value));
    }
    columns
}

proptest! {
    #[test]
    fn samples_come_back(samples in prop::collection::vec(any::<(u64, i64, u64)>(), 0..20)) {
        let samples = columns(&samples);
        let (mut record, mut read) = (Vec::new(), columns(&[(1, 2, 3)]));
        put_samples(&mut record, &samples);
        prop_assert_eq!(decode(&record, &mut read), Ok(Record::Samples));
        prop_assert_eq!(&read, &samples);
        for end in 0..record.len() {
            prop_assert!(decode(&record[..end], &mut read).is_err());
        }
    }

    #[test]
    fn series_come_back(mut numbers in prop::collection::btree_map(any::<u64>(), ".{0,30}", 0..20)) {
        numbers.remove(&0);
        let series = numbers.iter().map(|(number, labels)| (*number, labels.as_bytes()));
        let mut record = Vec::new();
        put_series(&mut record, series.clone());
        let read = decode(&record, &mut SampleBatch::default());
        prop_assert_eq!(read, Ok(Record::Series(series.collect())));
    }

    #[test]
    fn deletions_come_back(
        id in any::<u64>(),
        start in any::<i64>(),
        end in any::<i64>(),
        matchers in prop::collection::vec((0_usize..4, ".{0,9}", ".{0,9}"), 0..4),
    ) {
        let matchers = matchers.into_iter().map(|(op, name, value)| Matcher {
            name: name.into(),
            op: OPS[op],
            value: value.into(),
        });
        let deletion = Deletion { id, matchers: matchers.collect(), start, end };
        let mut record = Vec::new();
        put_deletion(&mut record, &deletion);
        let read = decode(&record, &mut SampleBatch::default());
        prop_assert_eq!(read, Ok(Record::Deletion(deletion)));
    }

    #[test]
    fn any_bytes_at_all_are_no_reason_to_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), kind in 0_u8..6) {
        let record: Vec<u8> = std::iter::once(kind).chain(bytes).collect();
        // Whether it can be read does not matter here.
        let _ = decode(&record, &mut SampleBatch::default());
    }
}
