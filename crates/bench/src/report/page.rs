//! The page: one file without scripts and without a network.

use std::fmt::Write;

use super::input::{Contrast, ReportInput, Section};
use super::plot::{Numbers, Plot};
use super::svg::escape;
use super::{conditions, forest, headline};
use crate::terminal::machine_summary;

/// The colours and marks of plots.
pub(crate) const PLOT_STYLE: &str = include_str!("plot.css");
const PAGE_STYLE: &str = include_str!("page.css");

/// Returns the whole page as HTML.
pub(crate) fn render_page(
    title: Option<&str>,
    files: &[ReportInput],
    contrasts: &[Contrast],
    sections: &[Section],
) -> String {
    let title = escape(&title.map_or_else(|| default_title(files), str::to_owned));
    let mut body = format!("<header>\n<h1>{title}</h1>\n");
    body.push_str(&cards(files));
    body.push_str(&navigation(sections, contrasts));
    body.push_str("</header>\n<main>\n");
    body.push_str(&remarks(files));
    body.push_str("<section id=\"results\">\n<h2>Results</h2>\n");
    for (caption, numbers) in
        [("Latencies", headline::latencies(files)), ("Values", headline::values(files))]
    {
        if !numbers.rows.is_empty() {
            body.push_str(&table(caption, &numbers));
        }
    }
    body.push_str("</section>\n");
    for section in sections {
        let verdicts = if section.id == "comparison" { verdicts(contrasts) } else { String::new() };
        if section.plots.is_empty() && verdicts.is_empty() {
            continue;
        }
        let _ = writeln!(body, "<section id=\"{}\">\n<h2>{}</h2>", section.id, section.title);
        body.push_str(&verdicts);
        for (index, plot) in section.plots.iter().enumerate() {
            body.push_str(&figure(&format!("{}-{index}", section.id), plot));
        }
        body.push_str("</section>\n");
    }
    body.push_str("<section id=\"conditions\">\n<h2>Conditions</h2>\n");
    body.push_str(&table("How each file was measured", &conditions::table(files)));
    body.push_str("</section>\n</main>\n");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{PLOT_STYLE}{PAGE_STYLE}</style>\n</head>\n\
         <body>\n{body}</body>\n</html>\n"
    )
}

fn default_title(files: &[ReportInput]) -> String {
    let mut scenarios: Vec<&str> = files.iter().map(|file| file.result.scenario.as_str()).collect();
    scenarios.dedup();
    format!("Egret bench: {}", scenarios.join(", "))
}

/// One card per file: its colour, its name, its machine.
fn cards(files: &[ReportInput]) -> String {
    let mut text = String::from("<ul class=\"cards\">\n");
    for (index, file) in files.iter().enumerate() {
        let role = match (files.len(), index) {
            (1, _) => "",
            (_, 0) => "A: ",
            (2, _) => "B: ",
            _ => "",
        };
        let _ = writeln!(
            text,
            "<li class=\"card s{index}\"><strong>{role}{}</strong><span>{}</span><span>{}</span></li>",
            escape(&file.label),
            escape(&machine_summary(&file.result.environment)),
            escape(&file.result.started_at.to_string())
        );
    }
    text + "</ul>\n"
}

fn navigation(sections: &[Section], contrasts: &[Contrast]) -> String {
    let mut text =
        String::from("<nav aria-label=\"Sections\">\n<a href=\"#results\">Results</a>\n");
    for section in sections {
        let has_text = section.id == "comparison" && !contrasts.is_empty();
        if has_text || !section.plots.is_empty() {
            let _ = writeln!(text, "<a href=\"#{}\">{}</a>", section.id, section.title);
        }
    }
    text + "<a href=\"#conditions\">Conditions</a>\n</nav>\n"
}

fn remarks(files: &[ReportInput]) -> String {
    let remarks = conditions::remarks(files);
    if remarks.is_empty() {
        return String::new();
    }
    let mut text =
        String::from("<aside class=\"remarks\">\n<h2>Before you trust the numbers</h2>\n<ul>\n");
    for remark in remarks {
        let _ = writeln!(text, "<li>{}</li>", escape(&remark));
    }
    text + "</ul>\n</aside>\n"
}

/// The verdict on each file, or why there is none.
fn verdicts(contrasts: &[Contrast]) -> String {
    let mut text = String::new();
    for contrast in contrasts {
        match &contrast.outcome {
            Ok(comparison) => {
                let word = comparison.verdict.as_str();
                let unit = if comparison.paired { "pairs" } else { "runs" };
                let _ = writeln!(
                    text,
                    "<p><strong class=\"verdict {word}\">{word}</strong> {} against {}: {} and {} {unit}, \
                     margin {:.1}%</p>",
                    escape(&comparison.b.label),
                    escape(&comparison.a.label),
                    comparison.b.runs,
                    comparison.a.runs,
                    comparison.margin * 100.0
                );
                for note in &comparison.notes {
                    let _ = writeln!(text, "<p class=\"note\">{}</p>", escape(note));
                }
                // Where nothing has a ratio there is no plot that could have the table beside it.
                if comparison.rows.iter().all(|row| row.ratio.is_none()) {
                    text.push_str(&table("Compared figures", &forest::numbers(comparison)));
                }
            }
            Err(reason) => {
                let _ = writeln!(
                    text,
                    "<p><strong class=\"verdict\">not compared</strong> {}</p>\n<pre>{}</pre>",
                    escape(&contrast.label),
                    escaped_lines(reason)
                );
            }
        }
    }
    text
}

/// Several lines of text, each made safe.
fn escaped_lines(text: &str) -> String {
    let safe: Vec<String> = text.lines().map(escape).collect();
    safe.join("\n")
}

/// A plot with its numbers beside it.
fn figure(id: &str, plot: &Plot) -> String {
    format!(
        "<figure>\n<div class=\"drawing\">{}</div>\n<figcaption>{}{}</figcaption>\n</figure>\n",
        plot.svg(id, None),
        format_args!("<p>{}</p>\n", escape(&plot.description)),
        table(&plot.title, &plot.numbers)
    )
}

/// A table that scrolls by itself where the page is narrow.
fn table(caption: &str, numbers: &Numbers) -> String {
    let caption = escape(caption);
    let mut text = format!(
        "<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"{caption}\">\n<table>\n\
         <caption>{caption}</caption>\n<thead><tr>"
    );
    let is_number_column: Vec<bool> = (0..numbers.head.len())
        .map(|column| {
            let mut cells = numbers.rows.iter().filter_map(|row| row.get(column));
            column > 0 && cells.all(|cell| is_number(cell))
        })
        .collect();
    let class = |column: usize| {
        if is_number_column.get(column).copied().unwrap_or_default() {
            " class=\"number\""
        } else {
            ""
        }
    };
    for (column, name) in numbers.head.iter().enumerate() {
        let class = class(column);
        let _ = write!(text, "<th scope=\"col\"{class}>{}</th>", escape(name));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    let mut previous_name = "";
    for row in &numbers.rows {
        text.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class = class(column);
            let cell_text = escape(cell);
            if column == 0 {
                // Names of metrics are long words: they may break where they are joined.
                let cell_text = cell_text.replace('_', "_<wbr>");
                let repeat_class = if previous_name == cell { " class=\"again\"" } else { "" };
                let _ = write!(text, "<th scope=\"row\"{repeat_class}>{cell_text}</th>");
                previous_name = cell;
            } else {
                let _ = write!(text, "<td{class}>{cell_text}</td>");
            }
        }
        text.push_str("</tr>\n");
    }
    text + "</tbody>\n</table>\n</div>\n"
}

/// Whether a cell lines up at its right: a number with a unit of one word, or nothing.
fn is_number(cell: &str) -> bool {
    let has_number_prefix = cell.starts_with(|c: char| c.is_ascii_digit() || "+−-×".contains(c));
    cell == "–" || (has_number_prefix && cell.split_whitespace().count() <= 2 && cell.len() <= 16)
}
