//! The server that a command calls, and token and certificates for it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use egret_tls::ClientIdentity;
use reqwest::Url;

use crate::api::{Address, Api, Credentials, read_token};
use crate::cli::Global;
use crate::configuration::Configuration;
use crate::failure::Failure;

/// Where the first start leaves the admin token, below the data directory.
const ADMIN_TOKEN_FILE: &str = "admin.token";

/// The client for the server that the flags, the environment or the configuration name.
pub(super) fn open_api(global: &Global, configuration: &Configuration) -> Result<Api, Failure> {
    let url = global.url.clone().or_else(|| environment_variable("EGRET_URL"));
    let mut address = match url {
        Some(text) => {
            Address { url: parse_url(&text)?, certificate: None, authorities: None, identity: None }
        }
        None => configuration.address()?,
    };
    address.identity = read_identity(global)?;
    address.authorities = read_authorities(global)?;
    if address.authorities.is_some() {
        // The authority vouches for the server, whatever file the configuration names.
        address.certificate = None;
    }
    let credentials = resolve_credentials(global, configuration, &address)?;
    Ok(Api::new(address, credentials)?)
}

/// The certificates that `--ca-file` holds.
pub(super) fn read_authorities(global: &Global) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = &global.ca_file else {
        return Ok(None);
    };
    let read = std::fs::read(path);
    read.map(Some).map_err(|error| Failure::usage(format!("--ca-file {}: {error}", path.display())))
}

/// The client's certificate and key that the flags or the environment name.
pub(super) fn read_identity(global: &Global) -> Result<Option<ClientIdentity>, Failure> {
    let path = |given: &Option<PathBuf>, name| {
        let given = given.clone();
        given.or_else(|| environment_variable(name).map(PathBuf::from))
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

pub(super) fn parse_url(text: &str) -> Result<Url, Failure> {
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
pub(super) fn resolve_credentials(
    global: &Global,
    configuration: &Configuration,
    address: &Address,
) -> Result<Credentials, Failure> {
    let unrestricted = |token| Credentials { token, owner: None };
    if let Some(path) = &global.token_file {
        return Ok(unrestricted(Some(read_token(path, File::open(path))?)));
    }
    if let Some(token) = environment_variable("EGRET_TOKEN") {
        return Ok(unrestricted(Some(token)));
    }
    let path = configuration.data_dir()?.join(ADMIN_TOKEN_FILE);
    // Whose directory it is may not be known yet.
    let opened =
        egret_linux::regular_file::open(&path).and_then(|file| Ok((file.metadata()?.uid(), file)));
    match opened {
        // The file that is read is the one whose owner was looked at.
        Ok((owner, file)) if address.is_loopback() => {
            Ok(Credentials { token: Some(read_token(&path, Ok(file))?), owner: Some(owner) })
        }
        _ => Ok(unrestricted(None)),
    }
}

fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
