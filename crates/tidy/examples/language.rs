//! The house vocabulary in numbers: totals with their goals, single findings, and the upkeep of the
//! list of allowances.

use std::process::ExitCode;

use egret_tidy::language::allowances::{self, Allowances};
use egret_tidy::language::{Measure, RULES, Rule, Survey};
use egret_tidy::tree;

const USAGE: &str = "\
usage: language                    totals of all rules, with the goals
       language list RULE [PATH]   each finding; PATH is a file or the start of a path
       language lower              lower the allowances to what the tree holds
       language move OLD NEW       give allowances of a moved or split file to its new path
                                   (both may be directories, written with a final `/`)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [] => print_totals(),
        ["list", rule] => print_findings(rule, ""),
        ["list", rule, path] => print_findings(rule, path),
        ["lower"] => rewrite(|allowances, survey| allowances.lower(&survey.counts())),
        ["move", old, new] => rewrite(|allowances, survey| {
            allowances.transfer(old, new, &survey.counts());
        }),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn survey() -> Survey {
    Survey::new(&tree::read_files(&tree::checkout_root()))
}

fn read_allowances() -> Result<Allowances, String> {
    let path = tree::checkout_root().join(allowances::PATH);
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", allowances::PATH))?;
    Allowances::parse(&text)
}

fn print_totals() -> Result<(), String> {
    let survey = survey();
    let allowances = read_allowances()?;
    println!("{:<18}{:>7}{:>9}  {:<34}what is counted", "rule", "total", "allowed", "goal");
    for rule in RULES {
        println!(
            "{:<18}{:>7}{:>9}  {:<34}{}",
            rule.name,
            survey.total(rule.name),
            allowances.total(rule.name),
            goal_text(&rule, &survey),
            rule.summary
        );
    }
    println!(
        "\n{} lines of Rust, {} types, {} doc comments",
        survey.line_count, survey.type_count, survey.doc_count
    );
    Ok(())
}

fn goal_text(rule: &Rule, survey: &Survey) -> String {
    let Some(limit) = rule.limit else {
        return "-".to_owned();
    };
    let measured = survey.measure(rule);
    let mark = if measured <= limit { "holds" } else { "short" };
    match rule.measure {
        Measure::Total => format!("{mark}: {measured} (≤ {limit})"),
        Measure::PercentOfTypes | Measure::PercentOfDocs => {
            format!("{mark}: {measured:.2} % (≤ {limit} %)")
        }
        Measure::PerThousandLines => format!("{mark}: {measured:.2} (≤ {limit}) per kline"),
    }
}

fn print_findings(rule: &str, path: &str) -> Result<(), String> {
    if !RULES.iter().any(|known| known.name == rule) {
        let names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        return Err(format!("no rule {rule}: there are {}", names.join(", ")));
    }
    let survey = survey();
    for finding in survey.findings_of(rule) {
        if finding.path.starts_with(path) {
            println!("{finding}");
        }
    }
    Ok(())
}

fn rewrite(change: impl FnOnce(&mut Allowances, &Survey)) -> Result<(), String> {
    let mut allowances = read_allowances()?;
    change(&mut allowances, &survey());
    let path = tree::checkout_root().join(allowances::PATH);
    std::fs::write(path, allowances.render())
        .map_err(|error| format!("cannot write {}: {error}", allowances::PATH))
}
