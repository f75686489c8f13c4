//! Arguments of `egret bench report`.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::compare::percent;

/// Write a page with tables and plots of result files
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(after_help = "\
The page needs no network and no script. Results are compared with that of the first file.

Example: egret bench report before.json after.json --out report.html")]
pub struct ReportArgs {
    /// Result files; at most six
    #[arg(value_name = "FILES", required = true)]
    pub files: Vec<PathBuf>,
    /// HTML file to write
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Directory to also write each plot to, as an SVG file
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Title of the page [default: names of the scenarios]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Equivalence margin in percent: the largest regression that counts as equivalent
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    pub margin: f64,
    /// Pair the runs of the files in order: the first with the first, and so on
    #[arg(long)]
    pub paired: bool,
    /// Property that may differ between the files, e.g. kernel or parameters.clients; may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    pub allow_different: Vec<String>,
}
