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
mod plural;
mod pool;
mod query;
mod queue;
mod repair;
mod series;
mod status;
mod token;
mod uninstall;
mod view;
mod volume;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use reqwest::Url;

use crate::api::{Address, Api, ClientIdentity, Credentials, read_token};
use crate::cli::{self, Cli, Command, Global};
use crate::configuration::Configuration;
use crate::failure::Failure;
use crate::output::Output;

/// Where the first start leaves the admin token, below the data directory.
const ADMIN_TOKEN_FILE: &str = "admin.token";

/// Does what the command line says, and returns what to exit with.
pub(crate) fn run(cli: Cli, output: Output) -> Result<ExitCode, Failure> {
    if let Command::Completions { shell } = cli.command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "egret", &mut script);
        output.text(&String::from_utf8_lossy(&script))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Config { reference: true } = cli.command {
        output.text(&crate::configuration::reference())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Series(cli::Series::Promqltest { paths }) = cli.command {
        series::promqltest(&paths, output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let configuration = load(&cli.global)?;
    if let Some(warning) = configuration.warning() {
        output.remark(&format!("warning: {warning}"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("runtime", format!("no threads to run on: {error}")))?;
    runtime.block_on(async {
        // Whose answer may be an exit code of its own.
        if let Command::Bench(command) = cli.command {
            return bench::run(command, &cli.global, &configuration).await;
        }
        dispatch(cli.command, &cli.global, &configuration, output).await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn load(global: &Global) -> Result<Configuration, Failure> {
    // A variable that is not UTF-8 cannot be one of Egret's.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(Configuration::load(
        global.config.as_deref(),
        environment,
        &global.set,
    )?)
}

async fn dispatch(
    command: Command,
    global: &Global,
    configuration: &Configuration,
    output: Output,
) -> Result<(), Failure> {
    let connect = || api(global, configuration);
    match command {
        Command::Serve => Ok(crate::serve::run(configuration, output).await?),
        Command::Demo => Ok(crate::demo::run(configuration, output).await?),
        Command::Check { postgres_url } => {
            if postgres_url.is_none() && !external::is_configured(configuration)? {
                return external::check_running(&connect()?, output).await;
            }
            external::check(postgres_url, configuration, output).await
        }
        Command::Uninstall {
            postgres_url: Some(url),
            force,
            ..
        } => uninstall::directly(url, force, configuration, output).await,
        Command::Uninstall {
            database, force, ..
        } => uninstall::by_server(database, force, &connect()?, output).await,
        Command::Repair { part, yes } => repair::run(part.as_deref(), yes, configuration, output),
        Command::Status => status::show(&connect()?, output).await,
        Command::Branch(command) => branch::run(command, &connect()?, output)
            .await
            .map_err(without_branches),
        Command::Queue(command) => queue::run(command, &connect()?, output).await,
        Command::Series(command) => series::run(command, &connect()?, output).await,
        Command::View(command) => view::run(command, &connect()?, output).await,
        Command::Collection(command) => document::collection(command, &connect()?, output).await,
        Command::Document(command) => document::run(command, &connect()?, output).await,
        Command::Clock(command) => clock::run(command, &connect()?, output).await,
        Command::Audit {
            since,
            token,
            operation,
            limit,
        } => {
            let request = audit::AuditRequest {
                since,
                token,
                operation,
                limit,
            };
            audit::list(request, &connect()?, output).await
        }
        Command::Token(command) => token::run(command, &connect()?, output).await,
        Command::Config { .. } => configuration::show(configuration, output),
        Command::Completions { .. } | Command::Bench(_) => Ok(()),
    }
}

/// A server that stands on an external PostgreSQL has no paths for branches at all.
fn without_branches(failure: Failure) -> Failure {
    if failure.code != "route_not_found" {
        return failure;
    }
    let message = "this server has no branches: they need the embedded server, and it stands on an external one (postgres.url)";
    Failure {
        request_id: failure.request_id,
        ..Failure::failed("branches_unavailable", message)
    }
    .with_hint("unset postgres.url to run the embedded server; `egret status` shows what this one stands on")
}

/// The client for the server that the flags, the environment or the configuration name.
fn api(global: &Global, configuration: &Configuration) -> Result<Api, Failure> {
    let given = global.url.clone().or_else(|| variable("EGRET_URL"));
    let mut address = match given {
        Some(text) => Address {
            url: parse_url(&text)?,
            certificate: None,
            authorities: None,
            identity: None,
        },
        None => configuration.address()?,
    };
    address.identity = identity(global)?;
    address.authorities = authorities(global)?;
    if address.authorities.is_some() {
        // The authority vouches for the server, whatever file the configuration names.
        address.certificate = None;
    }
    let credentials = token(global, configuration, &address)?;
    Ok(Api::new(address, credentials)?)
}

/// The certificates that `--ca-file` holds.
fn authorities(global: &Global) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = &global.ca_file else {
        return Ok(None);
    };
    let read = std::fs::read(path);
    read.map(Some)
        .map_err(|error| Failure::usage(format!("--ca-file {}: {error}", path.display())))
}

/// The client's certificate and key that the flags or the environment name.
fn identity(global: &Global) -> Result<Option<ClientIdentity>, Failure> {
    let path = |given: &Option<PathBuf>, name| {
        let given = given.clone();
        given.or_else(|| variable(name).map(PathBuf::from))
    };
    let certificate = path(&global.client_cert, "EGRET_CLIENT_CERT");
    let key = path(&global.client_key, "EGRET_CLIENT_KEY");
    let read = |flag, path: PathBuf| {
        let read = std::fs::read(&path);
        read.map_err(|error| Failure::usage(format!("{flag} {}: {error}", path.display())))
    };
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(ClientIdentity {
            certificate: read("--client-cert", certificate)?,
            key: read("--client-key", key)?,
        })),
        (Some(_), None) => Err(Failure::usage(
            "--client-cert needs the key of the certificate: --client-key or EGRET_CLIENT_KEY",
        )),
        (None, Some(_)) => Err(Failure::usage(
            "--client-key needs the certificate of the key: --client-cert or EGRET_CLIENT_CERT",
        )),
    }
}

fn parse_url(text: &str) -> Result<Url, Failure> {
    match text.parse::<Url>() {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(url),
        _ => {
            // What stands before `@` may be a password.
            let shown = text.rsplit_once('@').map_or(text, |(_, host)| host);
            Err(Failure::usage(format!(
                "`{shown}` is not the address of a server: write for example http://127.0.0.1:7070"
            )))
        }
    }
}

/// `--token-file`, else `EGRET_TOKEN`, else the admin token of the data directory, which goes to
/// this machine only, and there only to a process of the user that owns it.
fn token(
    global: &Global,
    configuration: &Configuration,
    address: &Address,
) -> Result<Credentials, Failure> {
    let known = |token| Credentials { token, owner: None };
    if let Some(path) = &global.token_file {
        return Ok(known(Some(read_token(path, File::open(path))?)));
    }
    if let Some(token) = variable("EGRET_TOKEN") {
        return Ok(known(Some(token)));
    }
    let path = configuration.data_dir()?.join(ADMIN_TOKEN_FILE);
    // Whose directory it is may not be known yet.
    let opened = egret_linux::regular::open(&path);
    let opened = opened.and_then(|file| Ok((file.metadata()?.uid(), file)));
    match opened {
        // The file that is read is the one whose owner was looked at.
        Ok((owner, file)) if address.is_loopback() => Ok(Credentials {
            token: Some(read_token(&path, Ok(file))?),
            owner: Some(owner),
        }),
        _ => Ok(known(None)),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
