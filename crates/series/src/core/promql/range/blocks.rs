//! What long windows that overlap have in common: sums and extremes of blocks of samples.

use std::ops::Range;

use super::super::kahan::Sum;

/// Samples in a block.
const BLOCK: usize = 32;
/// Windows of fewer samples are looked through.
const SAMPLES_MIN: usize = 4 * BLOCK;

/// Blocks of the series at hand.
#[derive(Default)]
pub(super) struct Blocks {
    sums: Vec<Sum>,
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
            self.sums.extend(values.chunks_exact(BLOCK).map(Sum::of));
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
        better: F,
    ) -> Extremes<'a, F> {
        self.extremes.clear();
        if samples >= SAMPLES_MIN {
            let blocks = values.chunks_exact(BLOCK);
            self.extremes
                .extend(blocks.map(|block| best(f64::NAN, block, &better)));
        }
        Extremes {
            values,
            blocks: &self.extremes,
            better,
        }
    }
}

/// The best of some values; NaN only when there is nothing else.
fn best(so_far: f64, values: &[f64], better: &impl Fn(f64, f64) -> bool) -> f64 {
    values.iter().fold(so_far, |best, now| {
        match better(*now, best) || best.is_nan() {
            true => *now,
            false => best,
        }
    })
}

pub(super) struct Sums<'a> {
    values: &'a [f64],
    blocks: &'a [Sum],
}

impl Sums<'_> {
    pub(super) fn sum(&self, window: Range<usize>) -> Sum {
        if self.blocks.is_empty() {
            return Sum::of(&self.values[window]);
        }
        let (before, blocks, behind) = split(&window);
        let mut sum = Sum::of(&self.values[before]);
        for block in &self.blocks[blocks] {
            sum = sum.join(*block);
        }
        sum.join(Sum::of(&self.values[behind]))
    }
}

pub(super) struct Extremes<'a, F> {
    values: &'a [f64],
    blocks: &'a [f64],
    better: F,
}

impl<F: Fn(f64, f64) -> bool> Extremes<'_, F> {
    pub(super) fn of(&self, window: Range<usize>) -> f64 {
        if self.blocks.is_empty() {
            return best(f64::NAN, &self.values[window], &self.better);
        }
        let (before, blocks, behind) = split(&window);
        let found = best(f64::NAN, &self.values[before], &self.better);
        let found = best(found, &self.blocks[blocks], &self.better);
        best(found, &self.values[behind], &self.better)
    }
}
