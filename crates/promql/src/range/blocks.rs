//! What long windows that overlap have in common: sums and extremes of blocks of samples.

use std::ops::Range;

use super::super::kahan::KahanSum;

/// Samples in a block.
const BLOCK: usize = 32;
/// Windows of fewer samples are looked through.
const SAMPLES_MIN: usize = 4 * BLOCK;

/// Blocks of the series at hand.
#[derive(Default)]
pub(super) struct Blocks {
    sums: Vec<KahanSum>,
    extremes: Vec<f64>,
}

/// A window as whole blocks with what is before and behind them.
fn split(window: &Range<usize>) -> (Range<usize>, Range<usize>, Range<usize>) {
    let first = window.start.div_ceil(BLOCK);
    let last = window.end / BLOCK;
    if first >= last {
        return (window.clone(), 0..0, 0..0);
    }
    (
        window.start..first * BLOCK,
        first..last,
        last * BLOCK..window.end,
    )
}

impl Blocks {
    /// Makes sums of blocks if windows have so many samples that it is worth it.
    pub(super) fn sums<'a>(&'a mut self, values: &'a [f64], samples: usize) -> Sums<'a> {
        self.sums.clear();
        if samples >= SAMPLES_MIN {
            self.sums
                .extend(values.chunks_exact(BLOCK).map(KahanSum::of));
        }
        Sums {
            values,
            blocks: &self.sums,
        }
    }

    /// Makes extremes of blocks if windows have so many samples that it is worth it.
    pub(super) fn extremes<'a, F: Fn(f64, f64) -> bool>(
        &'a mut self,
        values: &'a [f64],
        samples: usize,
        worst: f64,
        better: F,
    ) -> Extremes<'a, F> {
        self.extremes.clear();
        if samples >= SAMPLES_MIN {
            let blocks = values.chunks_exact(BLOCK);
            self.extremes
                .extend(blocks.map(|block| best(worst, block, &better)));
        }
        Extremes {
            values,
            blocks: &self.extremes,
            worst,
            better,
        }
    }
}

/// The best of some values; the worst there is when all of them are NaN. Several are found at once,
/// so that a comparison need not wait for the one before it.
fn best(worst: f64, values: &[f64], better: &impl Fn(f64, f64) -> bool) -> f64 {
    const LANES: usize = 8;
    let choose = |best: f64, now: f64| if better(now, best) { now } else { best };
    let mut lanes = [worst; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (best, now) in lanes.iter_mut().zip(chunk) {
            *best = choose(*best, *now);
        }
    }
    let found = lanes.into_iter().fold(worst, choose);
    rest.iter().copied().fold(found, choose)
}

pub(super) struct Sums<'a> {
    values: &'a [f64],
    blocks: &'a [KahanSum],
}

impl Sums<'_> {
    pub(super) fn sum(&self, window: Range<usize>) -> KahanSum {
        if self.blocks.is_empty() {
            return KahanSum::of(&self.values[window]);
        }
        let (before, blocks, behind) = split(&window);
        let mut sum = KahanSum::of(&self.values[before]);
        for block in &self.blocks[blocks] {
            sum = sum.join(*block);
        }
        sum.join(KahanSum::of(&self.values[behind]))
    }
}

pub(super) struct Extremes<'a, F> {
    values: &'a [f64],
    blocks: &'a [f64],
    worst: f64,
    better: F,
}

impl<F: Fn(f64, f64) -> bool> Extremes<'_, F> {
    /// NaN only when there is nothing else.
    pub(super) fn of(&self, window: Range<usize>) -> f64 {
        let best_of = |values: &[f64]| best(self.worst, values, &self.better);
        let found = if self.blocks.is_empty() {
            best_of(&self.values[window.clone()])
        } else {
            let (before, blocks, behind) = split(&window);
            let parts = [
                best_of(&self.values[before]),
                best_of(&self.blocks[blocks]),
                best_of(&self.values[behind]),
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
