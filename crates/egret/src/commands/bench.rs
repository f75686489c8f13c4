//! `egret bench …`: gives the harness what the command line, environment and configuration say.

use std::process::ExitCode;

use anyhow::Context;
use egret_bench::cli::BenchCommand;
use egret_bench::{Door, Refusal};

use super::{authorities, identity, parse_url, token};
use crate::api::{Address, without_credentials};
use crate::cli::Global;
use crate::configuration::Configuration;
use crate::failure::{Exit, Failure};
use crate::log_scenario::LogScenario;

pub(super) async fn run(
    command: BenchCommand,
    global: &Global,
    configuration: &Configuration,
) -> Result<ExitCode, Failure> {
    let door = match command.server() {
        Some(url) => Some(door(url, global, configuration)?),
        None => None,
    };
    let harness = egret_bench::Global {
        json: global.json,
        door,
        settings: global.set.clone(),
        program: std::env::current_exe().context("find this program")?,
    };
    match command {
        BenchCommand::Log(args) => {
            let scenario = LogScenario::new(&args).map_err(failure)?;
            let ran = egret_bench::run_scenario(scenario, &args.run, &harness).await;
            ran.map(|()| ExitCode::SUCCESS).map_err(failure)
        }
        command => egret_bench::run(command, &harness).await.map_err(failure),
    }
}

/// The Egret that `--server` names, with the token that other commands would use.
fn door(url: &str, global: &Global, configuration: &Configuration) -> Result<Door, Failure> {
    let mut address = Address {
        url: parse_url(url)?,
        certificate: None,
        authorities: authorities(global)?,
        identity: identity(global)?,
    };
    let token = token(global, configuration, &address)?.checked(&address)?;
    // The configured server is the one whose files and processes are known.
    let configured = configuration.address()?;
    let same_port = configured.url.port_or_known_default() == address.url.port_or_known_default();
    let data_dir = match address.is_loopback() && configured.is_loopback() && same_port {
        true => Some(configuration.data_dir()?),
        false => None,
    };
    if data_dir.is_some() && address.authorities.is_none() {
        address.certificate = configured.certificate;
    }
    Ok(Door {
        // It names the server in messages, too. Requests have the token.
        url: without_credentials(&address.url).to_string(),
        token,
        tls: Some(address.tls()?),
        data_dir,
    })
}

fn failure(error: anyhow::Error) -> Failure {
    match error.downcast_ref::<Refusal>() {
        Some(Refusal::Usage(message)) => Failure::usage(message),
        Some(Refusal::Unreachable(message)) => Failure {
            exit: Exit::Unreachable,
            ..Failure::failed("server_unreachable", message)
        },
        None => Failure::failed("bench_failed", format!("{error:#}")),
    }
}
