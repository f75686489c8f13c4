//! Every `egret …` line that README.md, docs/ and the help show is a command that exists, and the
//! reference pages are those that the program prints.

use std::collections::BTreeSet;

use egret_tidy::markdown::{Command, shell_commands};
use egret_tidy::tree;

use crate::place::{Place, text};

/// Why the line would be refused; `None` when it would not.
fn refusal(command: &Command) -> Option<String> {
    let (program, arguments) = command.words.split_first()?;
    if program.rsplit('/').next() != Some("egret") {
        return None;
    }
    let line = std::iter::once("egret").chain(arguments.iter().map(String::as_str));
    match egret::cli::command().try_get_matches_from(line) {
        Ok(_) => None,
        Err(error) if !error.use_stderr() => None,
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn commands_in_the_docs_exist() {
    let mut wrong = Vec::new();
    for page in tree::read_files(&tree::checkout_root()) {
        let is_page = page.path.ends_with(".md")
            && (page.path.starts_with("docs/")
                || !page.path.contains('/')
                || page.path.starts_with("crates/"));
        if !is_page {
            continue;
        }
        for command in shell_commands(&page.text) {
            if let Some(refusal) = refusal(&command) {
                let line = command.words.join(" ");
                wrong.push(format!("{}:{}: {line}\n{refusal}", page.path, command.line));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let page = "```console\n$ egret branch list --json\n$ egret branch fly\n$ target/release/egret statsu\n$ egret --help\n$ psql --fly\n```\n";
    let lines: Vec<usize> = shell_commands(page)
        .iter()
        .filter(|command| refusal(command).is_some())
        .map(|command| command.line)
        .collect();
    assert_eq!(lines, [3, 4]);
}

#[test]
fn the_reference_of_settings_is_that_of_the_program() {
    let place = Place::new("reference");
    let printed = text(&place.run(&["config", "--reference"]).stdout);
    assert_page("docs/reference/settings.md", &printed, "egret config --reference");
}

#[test]
fn the_reference_of_commands_is_that_of_the_program() {
    let printed = egret::cli::reference();
    assert_page("docs/reference/cli.md", &printed, "egret man --reference");
}

/// Fails unless a page of the checkout equals what `command` prints.
fn assert_page(path: &str, printed: &str, command: &str) {
    let page = std::fs::read_to_string(tree::checkout_root().join(path)).unwrap();
    let stale = page.lines().zip(printed.lines()).find(|(page, printed)| page != printed);
    assert_eq!(stale, None, "{path} is out of date: run: {command} > {path}");
    assert!(page == printed, "{path} is out of date at its end: run: {command} > {path}");
}

/// Columns of the help on a wide terminal, beyond which an example would be wrapped.
const HELP_COLUMNS: usize = 100;

/// What is wrong with the example of a command, and with those of its subcommands.
fn faults_of_examples(command: &clap::Command, faults: &mut Vec<String>) {
    let subcommands = command.get_subcommands();
    for subcommand in subcommands.filter(|subcommand| is_documented(subcommand)) {
        faults_of_examples(subcommand, faults);
    }
    let name = command.get_bin_name().unwrap_or_default();
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples: Vec<&str> = help.lines().filter(|line| line.starts_with("Example")).collect();
    match (command.is_subcommand_required_set(), examples.as_slice()) {
        (true, []) => {}
        (false, [example]) => {
            faults.extend(fault_of_example(name, example).map(|fault| format!("{name}: {fault}")));
        }
        (_, examples) => faults.push(format!("{name}: {} examples", examples.len())),
    }
}

/// Whether the command is one of Egret's own and visible.
fn is_documented(command: &clap::Command) -> bool {
    command.get_name() != "help" && !command.is_hide_set()
}

fn fault_of_example(name: &str, example: &str) -> Option<String> {
    if example.chars().count() > HELP_COLUMNS {
        return Some(format!("longer than {HELP_COLUMNS} columns: {example}"));
    }
    let Some(line) = example.strip_prefix("Example: ") else {
        return Some(format!("not of the form `Example: egret …`: {example}"));
    };
    let lines = shell_commands(&format!("```sh\n{line}\n```\n"));
    let [shown] = lines.as_slice() else {
        return Some(format!("not one command: {line}"));
    };
    let words: Vec<&str> = name.split(' ').collect();
    if !shown.words.iter().map(String::as_str).take(words.len()).eq(words) {
        return Some(format!("an example of another command: {line}"));
    }
    refusal(shown)
}

#[test]
fn every_command_has_one_example_that_parses() {
    let mut program = egret::cli::command();
    program.build();
    let mut faults = Vec::new();
    faults_of_examples(&program, &mut faults);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_wrong_example_is_found() {
    let fault = |example| fault_of_example("egret branch list", example);
    assert_eq!(fault("Example: egret branch list --json"), None);
    for example in [
        "Example: egret branch list --fly",
        "Example: egret branch show demo",
        "Examples: egret branch list",
    ] {
        assert!(fault(example).is_some(), "{example}");
    }
}

/// Names of the manual pages of a command and its subcommands.
fn names_of_pages(command: &clap::Command, names: &mut BTreeSet<String>) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    names.insert(format!("{name}.1"));
    let subcommands = command.get_subcommands();
    for subcommand in subcommands.filter(|subcommand| is_documented(subcommand)) {
        names_of_pages(subcommand, names);
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new("manual");
    let directory = place.directory.join("man1");
    let output = place.run(&["man", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut program = egret::cli::command();
    program.build();
    let mut expected = BTreeSet::new();
    names_of_pages(&program, &mut expected);
    let written: BTreeSet<String> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(written, expected);
    let page = std::fs::read_to_string(directory.join("egret-queue-enqueue.1")).unwrap();
    for part in [".SH SYNOPSIS", "egret queue enqueue", "Example: "] {
        assert!(page.contains(part), "{part} in {page}");
    }
}
