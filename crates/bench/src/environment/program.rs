//! Which build was measured, and which one measured: they differ where the server runs already.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::to_hex;
use crate::result::Program;
use crate::server::Server;

/// Version or commit of a server that does not report it.
const UNKNOWN: &str = "unknown";

impl Program {
    /// The build of a running Egret: what it says, and the hash of its binary where it is a process
    /// of this machine that may be looked at.
    ///
    /// # Errors
    /// When it does not answer, or the token may not read its status.
    pub(crate) async fn of_server(server: &Server) -> Result<Self> {
        let status = server.get("v1/status").await.context("ask the server for its version")?;
        let field = |name: &str| status[name].as_str().unwrap_or(UNKNOWN).to_owned();
        let binary_sha256 =
            server.pid().and_then(|pid| sha256(Path::new(&format!("/proc/{pid}/exe"))).ok());
        Ok(Self {
            version: field("version"),
            commit: field("commit"),
            binary_sha256,
            build_profile: field("build_profile"),
        })
    }

    /// The build of this process.
    ///
    /// # Errors
    /// When its binary cannot be read.
    pub(crate) fn current() -> Result<Self> {
        let binary = sha256(Path::new("/proc/self/exe")).context("read the running binary")?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: crate::COMMIT.to_owned(),
            binary_sha256: Some(binary),
            build_profile: crate::BUILD_PROFILE.to_owned(),
        })
    }
}

fn sha256(path: &Path) -> Result<String> {
    let mut hasher = HashWriter(Sha256::new());
    std::io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(to_hex(&hasher.0.finalize()))
}

struct HashWriter(Sha256);

impl std::io::Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
