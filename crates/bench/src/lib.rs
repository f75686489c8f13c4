//! The load harness: every number that Egret publishes, and what users measure on their own
//! systems.
//!
//! It reaches a system only through public doors (HTTP, gRPC, the PostgreSQL wire), like a user's
//! program. A run ends as one [`result::ResultFile`]. To add a scenario, read [`scenario`].

mod attach;
pub mod compare;
pub mod environment;
mod footprint;
mod http1;
pub mod load;
mod memory;
pub mod postgres;
pub mod private;
pub mod process;
pub mod progress;
#[cfg(test)]
mod published;
pub(crate) mod quantity;
pub mod record;
mod refusal;
pub mod report;
pub mod result;
mod runner;
#[cfg(test)]
pub(crate) mod sample;
pub mod scenario;
pub mod scenarios;
pub mod schedule;
pub mod server;
mod server_process;
pub mod stage;
pub mod steady;
pub mod terminal;
pub mod window;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;

pub(crate) use private::private_directory;
pub use refusal::Refusal;
pub use server::ServerEndpoint;

use egret_bench_cli::BenchCommand;
use scenarios::branches::Branches;
use scenarios::documents::Documents;
use scenarios::log::LogAppends;
use scenarios::queue::Queue;
use scenarios::series::Series;
use scenarios::sql::Sql;
use scenarios::views::Views;

/// The git commit that this program was built from, with `+dirty` behind it for a changed tree;
/// `unknown` outside a checkout.
pub(crate) const COMMIT: &str = env!("BUILD_COMMIT");

/// How it was built: `release`, `dev` or the name of another build profile.
pub(crate) const BUILD_PROFILE: &str = env!("BUILD_PROFILE");

/// Options of every command.
#[derive(Clone, Debug)]
pub struct Global {
    /// Print JSON instead of text for people.
    pub json: bool,
    /// The Egret named on the command line, where one is.
    pub endpoint: Option<ServerEndpoint>,
    /// Settings (`section.key`, value) of the command line, for a private Egret.
    pub settings: Vec<(String, String)>,
    /// The program to start as a private Egret.
    pub program: PathBuf,
}

/// Runs a command and says what to exit with.
///
/// # Errors
/// What failed; [`Refusal`] where that has an exit code of its own.
pub async fn run(command: BenchCommand, global: &Global) -> Result<ExitCode> {
    match command {
        BenchCommand::Branches(args) => {
            let scenario = Branches::new(&args)?;
            runner::run(scenario, &args.run, global).await?;
            Ok(ExitCode::SUCCESS)
        }
        BenchCommand::Queue(args) => {
            let scenario = Queue::new(&args)?;
            runner::run(scenario, &args.run, global).await?;
            Ok(ExitCode::SUCCESS)
        }
        BenchCommand::Series(args) => {
            let scenario = Series::new(&args)?;
            runner::run(scenario, &args.run, global).await?;
            Ok(ExitCode::SUCCESS)
        }
        BenchCommand::Views(args) => {
            let scenario = Views::new(&args)?;
            runner::run(scenario, &args.run, global).await?;
            Ok(ExitCode::SUCCESS)
        }
        BenchCommand::Documents(args) => {
            let scenario = Documents::new(&args);
            runner::run(scenario, &args.run, global).await?;
            Ok(ExitCode::SUCCESS)
        }
        BenchCommand::Sql(args) => {
            let scenario = Sql::new(&args)?;
            runner::run(scenario, &args.run, global).await?;
            Ok(ExitCode::SUCCESS)
        }
        BenchCommand::Log(args) => {
            let scenario = LogAppends::new(&args)?;
            runner::run(scenario, &args.run, global).await?;
            Ok(ExitCode::SUCCESS)
        }
        BenchCommand::Compare(args) => {
            // It waits for the commands that it runs.
            let json = global.json;
            let interruption = Arc::new(compare::Interruption::new());
            if !args.run.is_empty() {
                let name = interruption.clone();
                tokio::spawn(async move {
                    if let Ok(signal) = runner::await_signal().await {
                        // The first one counts.
                        let _ = name.set(signal);
                    }
                });
            }
            let comparison =
                tokio::task::spawn_blocking(move || run_compare(&args, json, &interruption));
            comparison.await?
        }
        BenchCommand::Report(args) => {
            let paths = report::run(&args)?;
            runner::print(&report::format_written(&paths, global.json))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_compare(
    args: &egret_bench_cli::CompareArgs,
    json: bool,
    interruption: &compare::Interruption,
) -> Result<ExitCode> {
    let progress = if json { progress::Progress::hidden() } else { progress::Progress::new() };
    let output = compare::run(args, json, &mut |message| progress.show(message), interruption);
    progress.finish();
    runner::print(&output.text)?;
    if let Some(error) = output.error {
        // Nothing sensible is left to do when standard error is gone.
        let _ = writeln!(std::io::stderr(), "error: {error}");
    }
    Ok(ExitCode::from(output.code))
}
