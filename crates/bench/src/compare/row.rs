//! One figure of a comparison: its values on both sides, its interval, its verdict.

use serde::Serialize;

use super::select::Figure;
use super::statistics::{Estimate, Outliers, sample_size_min};
use super::verdict::{Interval, Verdict, judge, runs_needed};
use super::{CONFIDENCE, Options, median};
use crate::result::{Better, Metric};

/// Fewer runs of a side cannot contradict chance at that confidence, however far apart they are.
/// For several figures together it takes more: [`sample_size_min`].
const RUNS_MIN: usize = 5;
/// The same for pairs: the chance that five of them agree in sign is above 5%.
const PAIRS_MIN: usize = 6;
/// A hint that asks for more than this is no help.
const RUNS_HINT_MAX: f64 = 500.0;
/// So many more outliers on the worse side are no accident: five coins agree once in 32 times. A
/// side that is slow now and then is not equivalent to one that never is.
const OUTLIER_EXCESS_MIN: usize = 5;

/// Comparison of one figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the figure, such as `create.p50` or `success`.
    pub figure: String,
    /// Unit of the metric.
    pub unit: String,
    /// Which direction is an improvement.
    pub better: Better,
    /// Median over the runs of A.
    pub a: f64,
    /// Median over the runs of B.
    pub b: f64,
    /// B/A; `None` where zeros leave no ratio.
    pub ratio: Option<f64>,
    /// The 95% interval of the ratio.
    pub interval: Option<(f64, f64)>,
    /// The interval that holds for all compared figures together at 95% (Bonferroni); `None` where
    /// there are too few runs for it.
    pub joint_interval: Option<(f64, f64)>,
    /// Verdict of the intervals at the margin.
    pub verdict: Verdict,
    /// About how many runs or pairs in all would decide it.
    pub runs_needed: Option<u64>,
    /// Why there is no interval, or none that decides.
    pub note: Option<String>,
    /// Runs or pairs that lie so far out that they do not count.
    pub outliers: usize,
    /// The ratio of each pair, where runs are paired.
    pub ratios: Vec<f64>,
}

impl Row {
    /// A row with the medians of both sides and no verdict yet.
    pub fn new(figure: &Figure, metric: &Metric, [a, b]: [&[f64]; 2]) -> Self {
        Self {
            figure: figure.to_string(),
            unit: metric.unit.clone(),
            better: metric.better,
            a: median(a),
            b: median(b),
            ratio: None,
            interval: None,
            joint_interval: None,
            verdict: Verdict::Inconclusive,
            runs_needed: None,
            note: None,
            outliers: 0,
            ratios: Vec::new(),
        }
    }

    /// The row with its interval and verdict, from one value per run of A and of B.
    pub(crate) fn with_verdict(
        mut self,
        [a, b]: [&[f64]; 2],
        joint_confidence: f64,
        options: &Options,
    ) -> Self {
        if a.iter().chain(b).any(|value| *value <= 0.0 || !value.is_finite()) {
            return self.judge_without_ratio([a, b]);
        }
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
        let (log_a, log_b) = (logs(a), logs(b));
        if options.paired {
            self.ratios = a.iter().zip(b).map(|(a, b)| b / a).collect();
        }
        let runs = a.len().min(b.len());
        let (runs_min, unit) =
            if options.paired { (PAIRS_MIN, "pairs") } else { (RUNS_MIN, "runs of each side") };
        if runs < runs_min {
            self.ratio = Some(median(b) / median(a));
            self.runs_needed = Some(runs_min as u64);
            self.note = Some(format!("{runs} of at least {runs_min} {unit}"));
            return self;
        }
        let estimate = if options.paired {
            let differences: Vec<f64> = log_a.iter().zip(&log_b).map(|(a, b)| b - a).collect();
            Estimate::paired(&differences, options.resampling)
        } else {
            Estimate::unpaired(&log_a, &log_b, options.resampling)
        };
        let joint_runs_min = runs_min.max(sample_size_min(joint_confidence));
        let joint_interval = (runs >= joint_runs_min).then(|| estimate.interval(joint_confidence));
        let plain_interval = self.set_verdict(&estimate, joint_interval, options.margin);
        if self.verdict != Verdict::Inconclusive || self.note.is_some() {
            return self;
        }
        if joint_interval.is_none()
            && judge(plain_interval, Some(plain_interval), options.margin) != self.verdict
        {
            self.runs_needed = Some(joint_runs_min as u64);
            self.note = Some(format!(
                "{runs} of at least {joint_runs_min} {unit} that are needed to decide this many \
                 figures at once"
            ));
            return self;
        }
        let needed_min = joint_runs_min.max(runs + 1) as f64;
        let needed = runs_needed(plain_interval, options.margin, runs).max(needed_min);
        self.runs_needed = (needed <= RUNS_HINT_MAX).then_some(needed.ceil() as u64);
        self
    }

    /// Fills in the intervals and their verdict; returns the interval of this figure alone.
    fn set_verdict(
        &mut self,
        estimate: &Estimate,
        joint_interval: Option<(f64, f64)>,
        margin: f64,
    ) -> Interval {
        let to_ratios = |(low, high): (f64, f64)| (low.exp(), high.exp());
        let (low, high) = estimate.interval(CONFIDENCE);
        let plain_interval = Interval::towards_worse(low, high, self.better);
        let wide_interval =
            joint_interval.map(|(low, high)| Interval::towards_worse(low, high, self.better));
        self.ratio = Some(estimate.log_ratio.exp());
        self.interval = Some(to_ratios((low, high)));
        self.joint_interval = joint_interval.map(to_ratios);
        self.verdict = judge(plain_interval, wide_interval, margin);
        self.outliers = estimate.outliers.below + estimate.outliers.above;
        if self.verdict <= Verdict::Equivalent && self.has_worse_outliers(estimate.outliers) {
            self.verdict = Verdict::Inconclusive;
            self.note = Some("outliers of B are worse than those of A".to_owned());
        }
        plain_interval
    }

    /// Whether the outliers lie on the worse side more often than chance allows.
    fn has_worse_outliers(&self, outliers: Outliers) -> bool {
        let (worse, better) = match self.better {
            Better::Higher => (outliers.below, outliers.above),
            Better::Lower | Better::Neither => (outliers.above, outliers.below),
        };
        worse >= better + OUTLIER_EXCESS_MIN
    }

    /// Zeros have no ratio. What can be said without one: nothing changed at all, or the figure
    /// left zero (or came to it) in every run.
    fn judge_without_ratio(mut self, [a, b]: [&[f64]; 2]) -> Self {
        let is_zero = |values: &[f64]| values.iter().all(|value| *value == 0.0);
        let is_positive = |values: &[f64]| values.iter().all(|value| *value > 0.0);
        let grew = is_zero(a) && is_positive(b);
        let vanished = is_positive(a) && is_zero(b);
        self.note = Some("zeros have no ratio".to_owned());
        self.verdict = match self.better {
            _ if is_zero(a) && is_zero(b) => Verdict::Equivalent,
            Better::Lower if grew => Verdict::Worse,
            Better::Higher if vanished => Verdict::Worse,
            Better::Lower if vanished => Verdict::Better,
            Better::Higher if grew => Verdict::Better,
            _ => Verdict::Inconclusive,
        };
        self
    }
}
