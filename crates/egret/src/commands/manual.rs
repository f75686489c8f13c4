//! `egret man`: manual pages, or the reference page of the command line.

use std::io;
use std::path::Path;

use clap_mangen::Man;
use serde_json::json;

use crate::cli;
use crate::failure::Failure;
use crate::output::Output;

/// Writes a manual page for every command to `directory`, or without one prints the reference page.
pub(super) fn run(directory: Option<&Path>, output: Output) -> Result<(), Failure> {
    let Some(directory) = directory else {
        return output.print_text(&cli::reference());
    };
    let pages = write_all(directory).map_err(|error| {
        let message = format!("cannot write manual pages to {}: {error}", directory.display());
        Failure::failed("manual_pages", message)
    })?;
    if output.is_json() {
        return output.print_json(&json!({"directory": directory, "pages": pages}));
    }
    output.print_text(&format!("{pages} manual pages are written to {}", directory.display()))
}

fn write_all(directory: &Path) -> io::Result<u32> {
    std::fs::create_dir_all(directory)?;
    let mut program = cli::command().disable_help_subcommand(true);
    program.build();
    write_pages(&program, directory)
}

fn write_pages(command: &clap::Command, directory: &Path) -> io::Result<u32> {
    let page = Man::new(command.clone())
        .source(concat!("egret ", env!("CARGO_PKG_VERSION")))
        .manual("Egret Manual");
    page.generate_to(directory)?;
    let mut pages = 1;
    for subcommand in command.get_subcommands() {
        if !subcommand.is_hide_set() {
            pages += write_pages(subcommand, directory)?;
        }
    }
    Ok(pages)
}
