//! The binary's parts: command line, configuration, the HTTP client, the demo's data, wiring.

pub mod api;
mod arguments;
pub mod cli;
mod commands;
pub mod configuration;
pub mod demo;
pub mod failure;
pub mod output;
mod responses;
pub mod serve;

use std::process::ExitCode;

use clap::Parser;

/// Runs the program and returns its exit code: 0 done, 1 failed, 2 wrong usage or configuration,
/// 3 server unreachable.
pub fn run() -> ExitCode {
    let arguments = match arguments::read_arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            let failure = failure::Failure::from(error);
            output::Output::new(false, cli::Color::Auto).print_failure(&failure);
            return ExitCode::from(failure.exit as u8);
        }
    };
    let cli = match cli::Cli::try_parse_from(cli::move_settings_last(arguments.clone())) {
        Ok(cli) => cli,
        Err(error) if error.exit_code() == 2 && cli::wants_json(arguments) => {
            let output = output::Output::new(true, cli::Color::Never);
            let failure = failure::Failure::from(error);
            output.print_failure(&failure);
            return ExitCode::from(failure.exit as u8);
        }
        Err(error) => error.exit(),
    };
    let output = output::Output::new(cli.global.json, cli.global.color);
    match commands::run(cli, output) {
        Ok(code) => code,
        Err(failure) => {
            output.print_failure(&failure);
            ExitCode::from(failure.exit as u8)
        }
    }
}
