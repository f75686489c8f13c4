//! `postmaster.pid`: what a running postmaster writes about itself.
//!
//! Format: `src/include/utils/pidfile.h` of PostgreSQL. Line 1 pid, 2 data directory, 3 start time
//! (seconds since the epoch), 4 port, 5 socket directory, 6 listen address, 7 shared memory,
//! 8 status.

use std::path::{Path, PathBuf};

/// The lines that Egret uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PidFile {
    /// Process id; negative in the file for a standalone backend.
    pub pid: i32,
    /// Data directory as the postmaster knows it.
    pub data: PathBuf,
    /// Start time in seconds since the Unix epoch.
    pub started_at_s: i64,
    /// TCP port, which also names the socket.
    pub port: Option<u16>,
    /// The first of its socket directories.
    pub socket_dir: Option<PathBuf>,
    /// Whether the status line says `ready`.
    pub is_ready: bool,
}

impl PidFile {
    /// Parses the file's text; `None` while it is incomplete or not one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = lines.next()?.trim().parse().ok()?;
        let data = PathBuf::from(lines.next()?.trim_end());
        let started_at_s = lines.next()?.trim().parse().ok()?;
        let port = lines.next().and_then(|line| line.trim().parse().ok());
        let socket_dir = lines.next().filter(|line| !line.is_empty()).map(PathBuf::from);
        let status = lines.nth(2).map_or("", str::trim);
        Some(Self { pid, data, started_at_s, port, socket_dir, is_ready: status == "ready" })
    }

    /// Reads the file of a data directory; `None` when there is none or it is incomplete.
    pub fn read(data: &Path) -> Option<Self> {
        let text = crate::cluster::read_no_follow(&pid_file_path(data)).ok()?;
        Self::parse(&text)
    }
}

/// Where the file is in a data directory.
pub fn pid_file_path(data: &Path) -> PathBuf {
    data.join("postmaster.pid")
}

#[cfg(test)]
mod tests;
