//! The options of `egret bench report`.

use std::path::PathBuf;

use clap::Args;

use crate::compare::args::percent;

/// Make a page with tables and plots of result files
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The page needs no network and no script. Of several files the first is what the others are compared
with.")]
pub struct ReportArgs {
    /// Result files, at most six
    #[arg(value_name = "FILES", required = true)]
    pub files: Vec<PathBuf>,
    /// The page to write
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Write each plot as an SVG file into this directory too
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// The page's title [default: the scenarios]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// How much worse still counts as the same, in percent
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    pub margin: f64,
    /// The files' runs were made in turn: the first of each file belong together, and so on
    #[arg(long)]
    pub paired: bool,
    /// What may differ between the files, e.g. kernel or parameters.clients; may be repeated
    #[arg(long, value_name = "NAME")]
    pub allow_different: Vec<String>,
}
