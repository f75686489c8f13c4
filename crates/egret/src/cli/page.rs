//! The reference page of the command line, made from the help of each command.

use std::fmt::Write;

use clap::Command;

use super::{GLOBAL_HEADING, command};

/// Width of the help texts, which otherwise depends on the terminal.
const COLUMNS: usize = 100;

/// A Markdown page with the help of every command.
pub fn reference() -> String {
    let mut page = String::from(
        "# Command line\n\n\
         Made by `egret man --reference`: the help of every command, as `egret COMMAND -h` prints it.\n\
         `egret COMMAND --help` and the manual pages that `egret man DIR` writes also explain the values of options.\n\
         The global options are listed once, under `egret`.\n",
    );
    let mut program = command().term_width(COLUMNS);
    program.build();
    let help = program.render_long_help().to_string();
    write_section(&mut page, program.get_name(), &help);
    write_subcommands(&mut page, &mut program);
    page
}

fn write_subcommands(page: &mut String, parent: &mut Command) {
    for command in parent.get_subcommands_mut() {
        if command.get_name() == "help" || command.is_hide_set() {
            continue;
        }
        let help = command.render_help().to_string();
        let name = command.get_bin_name().unwrap_or_default();
        write_section(page, name, &without_global_options(&help));
        write_subcommands(page, command);
    }
}

fn write_section(page: &mut String, name: &str, help: &str) {
    write!(page, "\n## {name}\n\n```text\n").expect("writing to a string works");
    for line in help.trim_end().lines() {
        page.push_str(line.trim_end());
        page.push('\n');
    }
    page.push_str("```\n");
}

/// The blocks of a short help, which empty lines separate, except that of the global options.
fn without_global_options(help: &str) -> String {
    let blocks = help.split("\n\n");
    let kept: Vec<_> = blocks.filter(|block| !block.starts_with(GLOBAL_HEADING)).collect();
    kept.join("\n\n")
}
