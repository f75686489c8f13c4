//! What a report is made of: result files, comparisons with the first, and sections of plots.

use std::collections::BTreeSet;

use super::plot::{LegendEntry, Plot};
use crate::compare::Comparison;
use crate::result::ResultFile;

/// A result file with what a report calls it.
#[derive(Debug)]
pub struct ReportInput {
    /// Its name without ending; told apart by a number where two are the same.
    pub label: String,
    /// Which one it is, from zero: its colour.
    pub index: usize,
    /// Contents of the file.
    pub result: ResultFile,
}

/// One file against the first.
#[derive(Debug)]
pub(crate) struct Contrast {
    /// The label of the file.
    pub label: String,
    /// Colour of the file.
    pub index: usize,
    /// The comparison, or why there is none.
    pub outcome: Result<Comparison, String>,
}

/// Plots that belong together.
#[derive(Debug)]
pub struct Section {
    /// The anchor of its heading.
    pub id: &'static str,
    /// Text of the heading.
    pub title: &'static str,
    /// Plots of the section.
    pub plots: Vec<Plot>,
}

/// The names of all metrics of all files.
pub(super) fn metric_names(files: &[ReportInput]) -> BTreeSet<String> {
    let metrics = files.iter().flat_map(|file| file.result.metrics.keys());
    metrics.cloned().collect()
}

/// The class of a mark in a file's colour.
pub(super) fn class_of(mark: &str, file: &ReportInput) -> String {
    format!("{mark} s{}", file.index)
}

/// A legend of files.
pub(super) fn legend_entries<'a>(
    files: impl Iterator<Item = &'a ReportInput>,
    mark: &str,
) -> Vec<LegendEntry> {
    files
        .map(|file| LegendEntry { class: class_of(mark, file), text: file.label.clone() })
        .collect()
}
