//! The page from disk: what it shows, that it needs nothing else, and that no file can take it
//! over.

use std::collections::BTreeMap;

use clap::Parser;

use super::*;
use crate::sample;

#[derive(Parser)]
struct TestCli {
    #[command(flatten)]
    report: ReportArgs,
}

/// The page and the plots of these files.
fn run_report(files: &[(&str, ResultFile)]) -> Result<(String, Vec<(String, String)>), String> {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let mut line = vec!["report".to_owned()];
    for (name, file) in files {
        file.write(Path::new(&path(name))).unwrap();
        line.push(path(name));
    }
    line.extend(["--out", &path("r.html"), "--svg", &path("plots")].map(str::to_owned));
    let args = TestCli::try_parse_from(line).unwrap().report;
    let written = run(&args).map_err(|error| format!("{error:#}"))?;
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let plots = written[1..].iter().map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, text(path))
    });
    Ok((text(&written[0]), plots.collect()))
}

fn three_files() -> Vec<(&'static str, ResultFile)> {
    let calm = [4.0, 4.01, 3.99, 4.02, 3.98, 4.0];
    vec![
        ("before.json", sample::file_with_runs(&calm)),
        ("after.json", sample::file_with_runs(&calm.map(|value| value * 0.8))),
        ("other.json", sample::file_with_runs(&calm.map(|value| value * 1.3))),
    ]
}

/// Whatever a browser would fetch or run.
fn assert_self_contained(text: &str) {
    let text = text.to_lowercase();
    for forbidden in [
        "<script",
        "<link",
        "<iframe",
        "<img",
        "<image",
        "<object",
        "<embed",
        "<base",
        "@import",
        "url(",
        "src=",
        "srcset=",
        "href=\"http",
        "href='",
        "href=\"//",
        "javascript:",
        "onload=",
    ] {
        assert!(!text.contains(forbidden), "{forbidden}");
    }
    // The name space of a drawing in a file of its own is a name, not an address.
    let rest = text.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    assert!(!rest.contains("http://") && !rest.contains("https://"));
}

/// Whether every element that is opened is closed, in order.
fn assert_is_well_formed(text: &str) {
    const WITHOUT_END: [&str; 3] = ["meta", "!doctype", "wbr"];
    let mut open = Vec::new();
    for piece in text.split('<').skip(1) {
        let tag = piece.split('>').next().unwrap();
        let name = tag.split([' ', '\n']).next().unwrap().to_lowercase();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "{piece}");
        } else if !tag.ends_with('/') && !WITHOUT_END.contains(&name.as_str()) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_report_of_three_files_needs_no_network() {
    let (page, plots) = run_report(&three_files()).unwrap();
    assert_self_contained(&page);
    assert_is_well_formed(&page);
    assert!(page.contains("default-src 'none'"));
    assert!(page.contains("prefers-color-scheme: dark"));
    let names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "comparison-after.svg",
            "comparison-other.svg",
            "distribution-create.svg",
            "phases-create.svg",
            "rate-create.svg",
            "latency-create.svg",
            "cycles-create.svg",
        ]
    );
    for (name, plot) in &plots {
        assert_self_contained(plot);
        assert_is_well_formed(plot);
        assert!(plot.contains("prefers-color-scheme: dark"), "{name}");
    }
}

#[test]
fn every_plot_has_a_title_a_description_and_its_numbers() {
    let (page, plots) = run_report(&three_files()).unwrap();
    assert_eq!(page.matches("<figure>").count(), plots.len());
    assert_eq!(page.matches("role=\"img\"").count(), plots.len());
    assert_eq!(page.matches("<desc ").count(), plots.len());
    for figure in page.split("<figure>").skip(1) {
        let figure = figure.split("</figure>").next().unwrap();
        assert!(figure.contains("<table>") && figure.contains("<td"), "{figure}");
    }
    let mut ids: Vec<&str> =
        page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id is there twice");
}

#[test]
fn files_are_judged_against_the_first() {
    let (page, _) = run_report(&three_files()).unwrap();
    assert!(page.contains("<strong class=\"verdict better\">better</strong> after against before"));
    assert!(page.contains("<strong class=\"verdict worse\">worse</strong> other against before"));
}

#[test]
fn one_file_has_no_comparison() {
    let (page, plots) = run_report(&three_files()[..1]).unwrap();
    assert!(!page.contains("id=\"comparison\""));
    assert_eq!(plots.len(), 5);
}

#[test]
fn files_of_other_conditions_are_shown_but_not_compared() {
    let mut files = three_files();
    files[1].1.environment.cpus = 64;
    let (page, plots) = run_report(&files).unwrap();
    assert!(page.contains("not compared</strong> after"));
    assert!(page.contains("cpus: 2 in A, 64 in B"));
    assert!(plots.iter().all(|(name, _)| name != "comparison-after.svg"));
}

#[test]
fn no_file_can_take_the_page_over() {
    const HOSTILE: &str = "\"><script src=//evil></script><img onload='x'> & {{x}}";
    let mut file = sample::file();
    let escaped_only = |text: &str| {
        assert!(!text.contains("<script") && !text.contains("<img"), "{text}");
        assert_is_well_formed(text);
    };
    file.scenario = HOSTILE.to_owned();
    file.command = HOSTILE.to_owned();
    file.warnings.push(HOSTILE.to_owned());
    file.errors.insert(HOSTILE.to_owned(), 3);
    file.parameters.insert(HOSTILE.to_owned(), HOSTILE.into());
    file.environment.cpu_model = HOSTILE.to_owned();
    file.environment.postgres_settings.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
    let create = file.metrics["create"].clone();
    file.metrics.insert(HOSTILE.to_owned(), create);
    let mut scalar = sample::scalar(1.0, HOSTILE, crate::result::Better::Lower);
    scalar.unit = HOSTILE.to_owned();
    file.metrics.insert("../../etc/x".to_owned(), scalar);
    let mut phase = file.phases["clone"].clone();
    phase.operation = HOSTILE.to_owned();
    file.phases.insert(HOSTILE.to_owned(), phase);
    for second in &mut file.timeline {
        let create = second.operations["create"].clone();
        second.operations.insert(HOSTILE.to_owned(), create);
    }
    for cycle in &mut file.cycles {
        cycle.latencies_ms.insert(HOSTILE.to_owned(), 3.0);
    }
    let (page, plots) = run_report(&[("a.json", file.clone()), ("b.json", file)]).unwrap();
    escaped_only(&page);
    for (name, plot) in plots {
        escaped_only(&plot);
        assert!(!name.contains('/') && !name.contains(".."), "{name}");
    }
}

#[test]
fn two_files_of_one_name_are_told_apart() {
    let results = vec![sample::file(), sample::file()];
    let paths = [PathBuf::from("x/result.json"), PathBuf::from("y/result.json")];
    let loaded = label_results(paths.iter().zip(results).collect());
    let labels: Vec<&str> = loaded.iter().map(|file| file.label.as_str()).collect();
    assert_eq!(labels, ["result", "result (2)"]);
}

#[test]
fn a_file_with_little_in_it_makes_a_page_too() {
    let mut file = sample::file();
    file.metrics = BTreeMap::new();
    file.timeline.clear();
    file.cycles.clear();
    file.phases.clear();
    file.warmup = None;
    let (page, plots) = run_report(&[("a.json", file)]).unwrap();
    assert!(plots.is_empty());
    assert_is_well_formed(&page);
}

#[test]
fn a_histogram_that_is_none_is_named() {
    let mut file = sample::file();
    file.metrics.get_mut("create").unwrap().histogram = Some("AAAA".to_owned());
    let error = run_report(&[("a.json", file)]).unwrap_err();
    assert!(error.contains("a: histogram of create"), "{error}");
}

#[test]
fn a_histogram_is_read_back_whole() {
    let metric = sample::latency(4.0, 10_000);
    let histogram = distribution::decode(metric.histogram.as_ref().unwrap()).unwrap();
    assert_eq!(histogram.len(), 10_000);
    let largest = histogram.max() as f64 / 1_000.0;
    assert_eq!(Some(largest), metric.max);
}
