//! What long windows that overlap have in common: sums and extremes of blocks of samples.

use std::ops::Range;

use super::super::kahan::KahanSum;

/// Samples in a block.
const BLOCK_SAMPLES: usize = 32;
/// Windows of fewer samples are looked through.
const SAMPLES_MIN: usize = 4 * BLOCK_SAMPLES;

/// Blocks of the series at hand.
#[derive(Default)]
pub(super) struct Blocks {
    sums: Vec<KahanSum>,
    extremes: Vec<f64>,
}

/// A window as whole blocks with what is before and behind them.
fn split_window(window: &Range<usize>) -> (Range<usize>, Range<usize>, Range<usize>) {
    let first = window.start.div_ceil(BLOCK_SAMPLES);
    let last = window.end / BLOCK_SAMPLES;
    if first >= last {
        return (window.clone(), 0..0, 0..0);
    }
    (window.start..first * BLOCK_SAMPLES, first..last, last * BLOCK_SAMPLES..window.end)
}

impl Blocks {
    /// Makes sums of blocks if windows have so many samples that it is worth it.
    pub(super) fn build_sums<'a>(&'a mut self, values: &'a [f64], samples: usize) -> Sums<'a> {
        self.sums.clear();
        if samples >= SAMPLES_MIN {
            self.sums.extend(values.chunks_exact(BLOCK_SAMPLES).map(KahanSum::from_values));
        }
        Sums { values, blocks: &self.sums }
    }

    /// Makes extremes of blocks if windows have so many samples that it is worth it.
    pub(super) fn build_extremes<'a, F: Fn(f64, f64) -> bool>(
        &'a mut self,
        values: &'a [f64],
        samples: usize,
        worst: f64,
        is_better: F,
    ) -> Extremes<'a, F> {
        self.extremes.clear();
        if samples >= SAMPLES_MIN {
            let blocks = values.chunks_exact(BLOCK_SAMPLES);
            self.extremes.extend(blocks.map(|block| find_best(worst, block, &is_better)));
        }
        Extremes { values, blocks: &self.extremes, worst, is_better }
    }
}

/// The best of some values; the worst there is when all of them are NaN. Several are found at once,
/// so that a comparison need not wait for the one before it.
fn find_best(worst: f64, values: &[f64], is_better: &impl Fn(f64, f64) -> bool) -> f64 {
    const LANES: usize = 8;
    let pick = |best: f64, now: f64| if is_better(now, best) { now } else { best };
    let mut lanes = [worst; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (best, now) in lanes.iter_mut().zip(chunk) {
            *best = pick(*best, *now);
        }
    }
    let found = lanes.into_iter().fold(worst, pick);
    rest.iter().copied().fold(found, pick)
}

pub(super) struct Sums<'a> {
    values: &'a [f64],
    blocks: &'a [KahanSum],
}

impl Sums<'_> {
    pub(super) fn sum(&self, window: Range<usize>) -> KahanSum {
        if self.blocks.is_empty() {
            return KahanSum::from_values(&self.values[window]);
        }
        let (before, blocks, behind) = split_window(&window);
        let mut sum = KahanSum::from_values(&self.values[before]);
        for block in &self.blocks[blocks] {
            sum = sum.merge(*block);
        }
        sum.merge(KahanSum::from_values(&self.values[behind]))
    }
}

pub(super) struct Extremes<'a, F> {
    values: &'a [f64],
    blocks: &'a [f64],
    worst: f64,
    is_better: F,
}

impl<F: Fn(f64, f64) -> bool> Extremes<'_, F> {
    /// NaN only when there is nothing else.
    pub(super) fn find(&self, window: Range<usize>) -> f64 {
        let best_of = |values: &[f64]| find_best(self.worst, values, &self.is_better);
        let found = if self.blocks.is_empty() {
            best_of(&self.values[window.clone()])
        } else {
            let (before, blocks, after) = split_window(&window);
            let parts = [
                best_of(&self.values[before]),
                best_of(&self.blocks[blocks]),
                best_of(&self.values[after]),
            ];
            best_of(&parts)
        };
        let is_unknown = found == self.worst;
        if is_unknown && self.values[window].iter().all(|value| value.is_nan()) {
            return f64::NAN;
        }
        found
    }
}
