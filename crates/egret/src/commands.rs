//! From a parsed command line to the work: what needs the server gets a client, what does not runs
//! without one.

mod audit;
mod bench;
mod branch;
mod clock;
mod configuration;
mod connect;
pub(crate) mod document;
pub(crate) mod events;
mod external;
mod manual;
mod plural;
mod pool;
mod query;
mod queue;
mod repair;
mod series;
mod server_access;
mod status;
mod token;
mod uninstall;
mod view;
mod volume;

use std::process::ExitCode;

use clap::CommandFactory;

use self::server_access::open_api;
use crate::cli::{self, Cli, Command, Global};
use crate::configuration::Configuration;
use crate::failure::Failure;
use crate::output::Output;

/// Does what the command line says, and returns what to exit with.
pub(crate) fn run(cli: Cli, output: Output) -> Result<ExitCode, Failure> {
    if let Command::Completions { shell } = cli.command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "egret", &mut script);
        output.print_text(&String::from_utf8_lossy(&script))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Man { directory, .. } = &cli.command {
        manual::run(directory.as_deref(), output)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Config { reference: true } = cli.command {
        output.print_text(&crate::configuration::reference())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Series(cli::SeriesCommand::Promqltest { paths }) = cli.command {
        series::promqltest(&paths, output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let configuration = load_configuration(&cli.global)?;
    if let Some(warning) = configuration.warning() {
        output.print_remark(&format!("warning: {warning}"));
    }
    if let Command::Bench(command) = cli.command {
        match bench::run(command, &cli.global, &configuration)? {}
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
            Failure::failed("runtime", format!("cannot start the threads of the runtime: {error}"))
        })?;
    runtime.block_on(async {
        dispatch(cli.command, &cli.global, &configuration, output).await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn load_configuration(global: &Global) -> Result<Configuration, Failure> {
    // A variable that is not UTF-8 cannot be one of Egret's.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(Configuration::load(global.config.as_deref(), environment, &global.set)?)
}

async fn dispatch(
    command: Command,
    global: &Global,
    configuration: &Configuration,
    output: Output,
) -> Result<(), Failure> {
    let connect = || open_api(global, configuration);
    match command {
        Command::Serve => Ok(crate::serve::run(configuration, output).await?),
        Command::Demo => Ok(crate::demo::run(configuration, output).await?),
        Command::Check { postgres_url } => {
            if postgres_url.is_none() && !external::is_configured(configuration)? {
                return external::check_running(&connect()?, output).await;
            }
            external::check(postgres_url, configuration, output).await
        }
        Command::Uninstall { postgres_url: Some(url), force, .. } => {
            uninstall::directly(url, force, configuration, output).await
        }
        Command::Uninstall { database, force, .. } => {
            uninstall::by_server(database, force, &connect()?, output).await
        }
        Command::Repair { part, yes } => repair::run(part.as_deref(), yes, configuration, output),
        Command::Status => status::show(&connect()?, output).await,
        Command::Branch(command) => {
            branch::run(command, &connect()?, output).await.map_err(explain_missing_branches)
        }
        Command::Queue(command) => queue::run(command, &connect()?, output).await,
        Command::Series(command) => series::run(command, &connect()?, output).await,
        Command::View(command) => view::run(command, &connect()?, output).await,
        Command::Collection(command) => {
            document::run_collection(command, &connect()?, output).await
        }
        Command::Document(command) => document::run(command, &connect()?, output).await,
        Command::Clock(command) => clock::run(command, &connect()?, output).await,
        Command::Audit { since, token, operation, limit } => {
            let request = audit::AuditRequest { since, token, operation, limit };
            audit::list(request, &connect()?, output).await
        }
        Command::Token(command) => token::run(command, &connect()?, output).await,
        Command::Config { .. } => configuration::show(configuration, output),
        Command::Completions { .. } | Command::Man { .. } | Command::Bench(_) => Ok(()),
    }
}

/// A server that stands on an external PostgreSQL has no paths for branches at all.
fn explain_missing_branches(failure: Failure) -> Failure {
    if failure.code != "route_not_found" {
        return failure;
    }
    let message = "this server has no branches: they need the embedded PostgreSQL, and it uses an external one (postgres.url)";
    Failure {
        request_id: failure.request_id,
        ..Failure::failed("branches_unavailable", message)
    }
    .with_hint("unset postgres.url to run the embedded PostgreSQL; `egret status` shows which one this server uses")
}
