//! What goes in comes out, bit by bit, also while more comes in.

use egret_metrics_model::{NORMAL_NAN_BITS, STALE_NAN_BITS};
use proptest::prelude::*;

use super::*;

fn fill(samples: &[(TimeMs, f64)]) -> Vec<Chunk> {
    let (first, rest) = samples.split_first().expect("there are some");
    let mut appender = Appender::new(first.0, first.1);
    let mut chunks = Vec::new();
    for (time_ms, value) in rest {
        if appender.push(*time_ms, *value).is_err() {
            chunks.push(appender.begin_next(*time_ms, *value));
        }
        assert_eq!(
            (appender.last_ms(), appender.last_value().to_bits()),
            (*time_ms, value.to_bits())
        );
    }
    chunks.push(appender.chunk().clone());
    chunks
}

fn read(chunks: &[Chunk]) -> Vec<(TimeMs, u64)> {
    let samples = chunks.iter().flat_map(Chunk::samples);
    samples.map(|(time_ms, value)| (time_ms, value.to_bits())).collect()
}

fn bits(samples: &[(TimeMs, f64)]) -> Vec<(TimeMs, u64)> {
    let samples = samples.iter();
    samples.map(|(time_ms, value)| (*time_ms, value.to_bits())).collect()
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (0_u32..1_000).prop_map(f64::from),
        2 => any::<f64>(),
        1 => any::<u64>().prop_map(f64::from_bits),
        1 => prop::sample::select(vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY]),
        1 => prop::sample::select(vec![STALE_NAN_BITS, NORMAL_NAN_BITS]).prop_map(f64::from_bits),
    ]
}

fn step() -> impl Strategy<Value = TimeMs> {
    prop_oneof![
        6 => Just(15_000),
        2 => 14_950_i64..15_050,
        1 => 1_i64..100_000_000,
        1 => any::<i64>(),
    ]
}

proptest! {
    #[test]
    fn samples_come_back_as_they_were(start in any::<i64>(), steps in prop::collection::vec((step(), value()), 1..400)) {
        let mut time_ms = start;
        let samples: Vec<_> = steps
            .iter()
            .map(|(step, value)| {
                time_ms = time_ms.wrapping_add(*step);
                (time_ms, *value)
            })
            .collect();
        prop_assert_eq!(read(&fill(&samples)), bits(&samples));
    }
}

#[test]
fn a_constant_series_takes_two_bits_a_sample() {
    let samples: Vec<_> = (0..20_000).map(|step| (step * 15_000, 1.0)).collect();
    let chunks = fill(&samples);
    let size_bytes: usize = chunks.iter().map(Chunk::size_bytes).sum();
    assert!(size_bytes < samples.len() * 3 / 8, "{size_bytes} bytes");
}

#[test]
fn a_chunk_can_be_read_while_it_grows() {
    let mut appender = Appender::new(0, 0.0);
    let (sender, receiver) = std::sync::mpsc::channel::<Chunk>();
    let reader = std::thread::spawn(move || {
        for chunk in receiver {
            for (step, (time_ms, value)) in chunk.samples().enumerate() {
                assert_eq!(value, time_ms as f64 * 3.0);
                assert_eq!(time_ms, chunk.first_ms() + step as i64 * 7);
            }
        }
    });
    for step in 1..20_000 {
        let (time_ms, value) = (step * 7, (step * 21) as f64);
        if appender.push(time_ms, value).is_err() {
            appender.begin_next(time_ms, value);
        }
        sender.send(appender.chunk().clone()).expect("the reader reads");
    }
    drop(sender);
    reader.join().expect("what it read was right");
}
