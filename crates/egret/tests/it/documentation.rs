//! Every `egret …` line that README.md and docs/ show is a command that exists, and the settings are those of the program.

use egret_tidy::markdown::{Command, commands};
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
    for page in tree::files(&tree::root()) {
        let is_page = page.path.ends_with(".md")
            && (page.path.starts_with("docs/")
                || !page.path.contains('/')
                || page.path.starts_with("crates/"));
        if !is_page {
            continue;
        }
        for command in commands(&page.text) {
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
    let lines: Vec<usize> = commands(page)
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
    let path = tree::root().join("docs/reference/settings.md");
    let page = std::fs::read_to_string(path).unwrap();
    let stale = page
        .lines()
        .zip(printed.lines())
        .find(|(page, printed)| page != printed);
    assert_eq!(
        stale, None,
        "run: egret config --reference > docs/reference/settings.md"
    );
    assert_eq!(page, printed);
}
