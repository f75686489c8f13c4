//! What `egret bench` hands to the harness: the parsed command and the server to measure.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;

use egret_linux::inherited;
use egret_tls::{ClientIdentity, ClientTls, ClientTlsError};
use rustix::fs::MemfdFlags;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use crate::BenchCommand;

/// Begins the only argument of the harness; the number of the descriptor of its [`Job`] follows.
pub const DESCRIPTOR_ARGUMENT: &str = "--job-in-descriptor=";

/// A command for the harness.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// The command to carry out.
    pub command: BenchCommand,
    /// Print JSON instead of text for people.
    pub json: bool,
    /// Settings (`section.key`, value) of the command line, for a private Egret.
    pub settings: Vec<(String, String)>,
    /// The program to start as a private Egret.
    pub program: PathBuf,
    /// The Egret that `--server` names.
    pub server: Option<ServerAccess>,
}

/// How to reach a running Egret.
#[derive(Clone, Serialize, Deserialize)]
pub struct ServerAccess {
    /// Its address without credentials, e.g. `http://127.0.0.1:7070`.
    pub url: String,
    /// Token for its API.
    pub token: Option<String>,
    /// Its own certificate (PEM), where its configuration is at hand.
    pub certificate: Option<Vec<u8>>,
    /// Certificates of authorities (PEM) that are trusted beside those of the machine.
    pub authorities: Option<Vec<u8>>,
    /// Certificate of the client and its private key.
    pub identity: Option<ClientIdentity>,
    /// Its data directory, where it is known to be on this machine.
    pub data_dir: Option<PathBuf>,
}

impl std::fmt::Debug for ServerAccess {
    /// Shows neither token nor key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerAccess").field("url", &self.url).finish_non_exhaustive()
    }
}

impl ServerAccess {
    /// TLS with the server.
    ///
    /// # Errors
    /// [`ClientTlsError`]: which certificate or key cannot be used.
    pub fn tls_config(&self) -> Result<ClientConfig, ClientTlsError> {
        let tls = ClientTls {
            certificate: self.certificate.as_deref(),
            authorities: self.authorities.as_deref(),
            identity: self.identity.as_ref(),
        };
        tls.config()
    }
}

impl Job {
    /// Writes the job into an anonymous file that stays open in the program executed next.
    ///
    /// # Errors
    /// When no such file can be made.
    pub fn to_memory_file(&self) -> io::Result<OwnedFd> {
        let text = serde_json::to_vec(self)?;
        // Without MFD_CLOEXEC.
        let mut file = File::from(rustix::fs::memfd_create("job", MemfdFlags::empty())?);
        file.write_all(&text)?;
        file.rewind()?;
        Ok(file.into())
    }

    /// Reads the job that the program executed before passed on, from the descriptor with this
    /// number.
    ///
    /// # Errors
    /// When the descriptor is no anonymous file with a job.
    pub fn from_descriptor(descriptor: RawFd) -> io::Result<Self> {
        let mut text = Vec::new();
        File::from(inherited::take_memory_file(descriptor)?).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}
