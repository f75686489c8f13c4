//! `egret bench …`: hands the command to the load harness, a program of its own beside this one.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use egret_bench_cli::{BenchCommand, DESCRIPTOR_ARGUMENT, Job, ServerAccess};

use super::server_access::{parse_url, read_authorities, read_identity, resolve_credentials};
use crate::api::{Address, without_credentials};
use crate::cli::Global;
use crate::configuration::Configuration;
use crate::failure::Failure;

/// File name of the harness, in the directory of this program.
const HARNESS: &str = "egret-bench";

/// Executes the harness in place of this program; returns only when that fails.
pub(super) fn run(
    command: BenchCommand,
    global: &Global,
    configuration: &Configuration,
) -> Result<Infallible, Failure> {
    let server = match command.server() {
        Some(url) => Some(resolve_access(url, global, configuration)?),
        None => None,
    };
    let program = std::env::current_exe().context("find this program")?;
    let harness = program.with_file_name(HARNESS);
    let job = Job { command, json: global.json, settings: global.set.clone(), program, server };
    let descriptor = job.to_memory_file().context("hand the command to the harness")?;
    let error = Command::new(&harness)
        .arg(format!("{DESCRIPTOR_ARGUMENT}{}", descriptor.as_raw_fd()))
        .exec();
    if error.kind() == io::ErrorKind::NotFound {
        let message = format!("the load harness is not installed: {}", harness.display());
        let hint = "install egret-bench beside egret; in a checkout: cargo build -p egret-bench";
        return Err(Failure::failed("bench_not_installed", message).with_hint(hint));
    }
    Err(Failure::failed("bench_failed", format!("cannot execute {}: {error}", harness.display())))
}

/// The Egret that `--server` names, with the token that other commands would use.
fn resolve_access(
    url: &str,
    global: &Global,
    configuration: &Configuration,
) -> Result<ServerAccess, Failure> {
    let mut address = Address {
        url: parse_url(url)?,
        certificate: None,
        authorities: read_authorities(global)?,
        identity: read_identity(global)?,
    };
    let token =
        resolve_credentials(global, configuration, &address)?.into_checked_token(&address)?;
    // The configured server is the one whose files and processes are known.
    let configured = configuration.address()?;
    let is_same_port =
        configured.url.port_or_known_default() == address.url.port_or_known_default();
    let data_dir = if address.is_loopback() && configured.is_loopback() && is_same_port {
        Some(configuration.data_dir()?)
    } else {
        None
    };
    if data_dir.is_some() && address.authorities.is_none() {
        address.certificate = configured.certificate;
    }
    Ok(ServerAccess {
        // It names the server in messages, too. Requests have the token.
        url: without_credentials(&address.url).to_string(),
        token,
        certificate: address.certificate,
        authorities: address.authorities,
        identity: address.identity,
        data_dir,
    })
}
