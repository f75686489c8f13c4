//! `egret bench report`: result files as one page that opens from disk, and its plots as SVG.
//!
//! The plots are written by hand, not by a plotting library: their colours are CSS variables, so
//! one drawing serves light and dark, and their texts stay text, for screen readers and search.

mod conditions;
mod distribution;
mod forest;
mod headline;
mod input;
mod page;
mod phases;
mod plot;
mod scale;
mod svg;
mod timeline;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use egret_bench_cli::ReportArgs;
use input::{Contrast, ReportInput, Section};

use crate::compare::statistics::Resampling;
use crate::compare::{Options, compare};
use crate::result::ResultFile;

/// As many as there are colours that can be told apart.
pub const FILES_MAX: usize = 6;

/// Writes the page, and the plots where they are wanted. Returns the files that were written.
///
/// # Errors
/// When a file cannot be read or is no result file, or the report cannot be written.
pub fn run(args: &ReportArgs) -> Result<Vec<PathBuf>> {
    ensure!(
        args.files.len() <= FILES_MAX,
        "a report shows at most {FILES_MAX} files, these are {}",
        args.files.len()
    );
    let results = args.files.iter().map(|path| Ok((path, ResultFile::read(path)?)));
    let files = label_results(results.collect::<Result<Vec<_>>>()?);
    let contrasts = compare_with_first(&files, args);
    let sections = build_sections(&files, &contrasts)?;
    let page = page::render_page(args.title.as_deref(), &files, &contrasts, &sections);
    write_file(&args.out, &page)?;
    let mut paths = vec![args.out.clone()];
    if let Some(directory) = &args.svg {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let mut names = BTreeSet::new();
        for plot in sections.iter().flat_map(|section| &section.plots) {
            let mut name = plot.name.clone();
            while !names.insert(name.clone()) {
                name.push('_');
            }
            let path = directory.join(name).with_extension("svg");
            write_file(&path, &plot.svg("plot", Some(page::PLOT_STYLE)))?;
            paths.push(path);
        }
    }
    Ok(paths)
}

/// What is said of the files that were written, the page first.
pub(crate) fn format_written(paths: &[PathBuf], json: bool) -> String {
    let names = paths.iter().map(|path| path.display().to_string());
    if json {
        let names: Vec<String> = names.collect();
        let answer = serde_json::json!({ "written": names });
        return format!("{answer:#}\n");
    }
    let lines: Vec<String> = names.map(|name| format!("wrote {name}\n")).collect();
    lines.concat()
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Gives every file its name and its colour.
fn label_results(results: Vec<(&PathBuf, ResultFile)>) -> Vec<ReportInput> {
    let mut labels = BTreeSet::new();
    results
        .into_iter()
        .enumerate()
        .map(|(index, (path, result))| {
            let stem = path.file_stem().unwrap_or(path.as_os_str());
            let mut label = stem.to_string_lossy().into_owned();
            if !labels.insert(label.clone()) {
                label = format!("{label} ({})", index + 1);
                labels.insert(label.clone());
            }
            ReportInput { label, index, result }
        })
        .collect()
}

fn compare_with_first(files: &[ReportInput], args: &ReportArgs) -> Vec<Contrast> {
    let Some((first, others)) = files.split_first() else {
        return Vec::new();
    };
    let options = Options {
        figures: Vec::new(),
        margin: args.margin,
        paired: args.paired,
        allow_different: args.allow_different.clone(),
        resampling: Resampling::with_seed(1),
    };
    others
        .iter()
        .map(|other| {
            let labels = [first.label.clone(), other.label.clone()];
            let comparison = compare(&first.result, &other.result, labels, &options);
            Contrast {
                label: other.label.clone(),
                index: other.index,
                outcome: comparison.map_err(|error| format!("{error:#}")),
            }
        })
        .collect()
}

fn build_sections(files: &[ReportInput], contrasts: &[Contrast]) -> Result<Vec<Section>> {
    let forests = contrasts
        .iter()
        .filter_map(|contrast| {
            let comparison = contrast.outcome.as_ref().ok()?;
            forest::plot(comparison, &format!("s{}", contrast.index))
        })
        .collect();
    let sections = [
        ("comparison", "Comparison", forests),
        ("distributions", "Distributions", distribution::plots(files)?),
        ("phases", "Phases", phases::plots(files)),
        ("timeline", "Over time", timeline::plots(files)),
        ("cycles", "Every cycle", timeline::cycle_plots(files)),
    ];
    let sections_with_plots =
        sections.into_iter().map(|(id, title, plots)| Section { id, title, plots });
    Ok(sections_with_plots.collect())
}

#[cfg(test)]
mod tests;
