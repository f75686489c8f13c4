//! Every histogram comes back.

use egret_log::simulated::SplitMix64;

use super::*;

fn counts(chance: &mut SplitMix64, is_float: bool, count: usize) -> Counts {
    if is_float {
        Counts::Float((0..count).map(|_| chance.next_below(1000) as f64 / 8.0).collect())
    } else {
        Counts::Integer((0..count).map(|_| chance.next_below(100)).collect())
    }
}

fn buckets(chance: &mut SplitMix64, is_float: bool) -> Buckets {
    let spans: Vec<Span> = (0..chance.next_below(3))
        .map(|_| Span {
            offset: chance.next_below(9) as i32 - 4,
            length: chance.next_below(5) as u32,
        })
        .collect();
    let count = spans.iter().map(|span| span.length as usize).sum();
    Buckets { counts: counts(chance, is_float, count), spans }
}

fn histogram(chance: &mut SplitMix64) -> Histogram {
    let is_float = chance.percent(30);
    let has_bounds = chance.percent(20);
    let integer =
        (!is_float).then(|| (chance.next_below(1 << 60), u64::MAX - chance.next_below(1000)));
    let rounded = integer.unwrap_or((chance.next_below(9), chance.next_below(9)));
    Histogram {
        schema: if has_bounds { -53 } else { chance.next_below(13) as i8 - 4 },
        zero_threshold: 1.0 / (1 + chance.next_below(3)) as f64,
        zero_count: if chance.percent(90) { rounded.0 as f64 } else { f64::NAN },
        count: rounded.1 as f64,
        integer_counts: integer,
        sum: if chance.percent(10) {
            f64::from_bits(egret_metrics_model::STALE_NAN_BITS)
        } else {
            chance.next_below(1 << 40) as f64 / 3.0
        },
        positive: buckets(chance, is_float),
        negative: buckets(chance, is_float),
        custom_bounds: if has_bounds { Arc::new([0.5, 1.0, f64::MAX]) } else { Arc::new([]) },
        counter_reset: RESETS[chance.next_below(4) as usize],
    }
}

/// Like another, but counted on: what a column mostly has.
fn counted_on(before: &Histogram, chance: &mut SplitMix64) -> Histogram {
    let mut next = before.clone();
    next.sum += chance.next_below(100) as f64;
    for counts in [&mut next.positive.counts, &mut next.negative.counts] {
        match counts {
            Counts::Integer(counts) => {
                counts.iter_mut().for_each(|count| *count += chance.next_below(3))
            }
            Counts::Float(counts) => counts.iter_mut().for_each(|count| *count += 0.5),
        }
    }
    next
}

fn column(chance: &mut SplitMix64, count: u64) -> Vec<Arc<Histogram>> {
    let mut column: Vec<Arc<Histogram>> = Vec::new();
    for _ in 0..count {
        let next = match column.last() {
            Some(last) if chance.percent(70) => counted_on(last, chance),
            _ => histogram(chance),
        };
        column.push(Arc::new(next));
    }
    column
}

/// As text, in which a NaN is equal to itself; sums by their bits besides.
fn shown(column: &[Arc<Histogram>]) -> String {
    let sums: Vec<u64> = column.iter().map(|histogram| histogram.sum.to_bits()).collect();
    format!("{column:?} {sums:?}")
}

#[test]
fn any_histograms_come_back() {
    for seed in 0..300 {
        let mut chance = SplitMix64::new(seed);
        let count = chance.next_below(40);
        let column = column(&mut chance, count);
        let mut bytes = Vec::new();
        encode(&column, &mut bytes);
        let mut again = Vec::new();
        decode(&bytes, column.len(), &mut again).expect("it was written so");
        assert_eq!(shown(&again), shown(&column), "seed {seed}");
    }
}

#[test]
fn histograms_that_count_on_are_small() {
    let mut chance = SplitMix64::new(1);
    let mut column = vec![Arc::new(histogram(&mut chance))];
    for at in 0..479 {
        column.push(Arc::new(counted_on(&column[at], &mut chance)));
    }
    let mut bytes = Vec::new();
    encode(&column, &mut bytes);
    assert!(bytes.len() < 480 * 16, "{}", bytes.len());
}

#[test]
fn spans_that_promise_other_buckets_than_there_are_are_damage() {
    let mut chance = SplitMix64::new(3);
    let mut promising = histogram(&mut chance);
    promising.positive.spans.push(Span { offset: 1, length: 1 << 31 });
    let mut bytes = Vec::new();
    encode(&[Arc::new(promising)], &mut bytes);
    assert!(decode(&bytes, 1, &mut Vec::new()).is_err());
}

#[test]
fn damaged_histograms_are_refused_or_others() {
    let mut chance = SplitMix64::new(2);
    let column = column(&mut chance, 30);
    let mut frame = Vec::new();
    encode(&column, &mut frame);
    let body = crate::core::frame::open_frame(&frame, WHAT).expect("it was written so");
    for _ in 0..5000 {
        let mut damaged = body.clone();
        chance.damage(&mut damaged);
        let mut frame = Vec::new();
        crate::core::frame::put_frame(&mut frame, &damaged);
        let mut out = Vec::new();
        if decode(&frame, 30, &mut out).is_ok() {
            assert_eq!(out.len(), 30);
        }
    }
}
