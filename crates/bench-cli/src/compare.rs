//! Arguments of `egret bench compare`.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

/// Runs of each side without `--pairs`.
pub const PAIRS_DEFAULT: u32 = 20;
/// More pairs than this sharpen nothing that a margin in percent could see.
pub const PAIRS_MAX: u32 = 500;

/// Compare two results, or two commands that run in turn
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(after_help = "\
Exit codes: 0 better or equivalent, 1 worse, 2 inconclusive, 3 cannot be compared.
A is the baseline, B the candidate. Ratios are B/A.

Example: egret bench compare before.json after.json --metric create.p95 --margin 3%")]
pub struct CompareArgs {
    /// Result files A and B
    #[arg(value_names = ["A", "B"], num_args = 2, required_unless_present = "run", conflicts_with = "run")]
    pub files: Vec<PathBuf>,
    /// Command that writes a result file, executed without a shell; given twice, for A and for B.
    /// `--out FILE` is appended, or FILE replaces `{out}`
    #[arg(long, value_name = "COMMAND")]
    pub run: Vec<String>,
    /// Number of runs of each command
    #[arg(long, value_name = "N", default_value_t = PAIRS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAIRS_MAX)), requires = "run")]
    pub pairs: u32,
    /// Metric to compare, e.g. create or create.p95; may be repeated [default: all that have a
    /// direction, latencies by their median]
    #[arg(long, value_name = "NAME[.STATISTIC]")]
    pub metric: Vec<String>,
    /// Equivalence margin in percent: the largest regression that counts as equivalent
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    pub margin: f64,
    /// Pair the runs of the files in order: the first of A with the first of B, and so on
    #[arg(long, conflicts_with = "run")]
    pub paired: bool,
    /// Property that may differ between A and B, e.g. kernel or parameters.clients; may be repeated
    #[arg(long, value_name = "NAME")]
    pub allow_different: Vec<String>,
    /// Directory to keep the results and outputs of all runs in, with `a.json` and `b.json` for all
    /// runs of a side
    #[arg(long, value_name = "DIR", requires = "run")]
    pub keep: Option<PathBuf>,
    /// Seed of the order within pairs and of the resampling
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// `5%` or `5` as 0.05.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err("a percentage above 0 and below 100, e.g. 5%".to_owned()),
    }
}
