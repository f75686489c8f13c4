//! The measured system: an Egret or a peer, by its ports and its process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use egret_bench_cli::SeriesPeer;

use super::body::WriteAddress;
use crate::footprint::disk_bytes;
use crate::http1::Connection;
use crate::server_process::{self, ServerProcess};
use crate::stage::Stage;

/// Disk has settled when it did not change for this long.
const STABLE_DURATION: Duration = Duration::from_secs(3);

/// After this time it counts as it is.
const STABLE_TIMEOUT: Duration = Duration::from_secs(120);

const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    Egret,
    Prometheus,
    VictoriaMetrics,
}

/// A database of metrics that is measured.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) vendor: Vendor,
    pub(super) address: WriteAddress,
    /// Before `query` and `query_range`.
    pub(super) api: &'static str,
    pub(super) process: Option<u32>,
    pub(super) data_dir: Option<PathBuf>,
}

impl Vendor {
    /// As metrics have it before their name; nothing for Egret's.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Egret => "",
            Self::Prometheus => "prometheus_",
            Self::VictoriaMetrics => "victoria_metrics_",
        }
    }
}

impl System {
    /// The stage's Egret.
    ///
    /// # Errors
    /// When there is none, or it speaks TLS only.
    pub(super) fn from_stage(stage: &Stage) -> Result<Self> {
        let endpoint = stage.server()?.endpoint();
        let url = endpoint.url.trim_end_matches('/');
        let Some(host) = url.strip_prefix("http://") else {
            bail!("{url}: samples are sent by plain HTTP only");
        };
        let private = stage.private_server.as_ref().map(|private| private.pid());
        Ok(Self {
            vendor: Vendor::Egret,
            address: WriteAddress {
                host: host.to_owned(),
                token: endpoint.token.clone(),
                path: "/prometheus/api/v1/write",
            },
            api: "/prometheus/api/v1",
            process: private.or(stage.server()?.pid()),
            data_dir: endpoint.data_dir.as_ref().map(|data| data.join("series")),
        })
    }

    /// A peer that runs.
    pub(super) fn from_peer(peer: SeriesPeer, process: &ServerProcess) -> Self {
        Self {
            vendor: vendor(peer),
            address: WriteAddress {
                host: format!("127.0.0.1:{}", process.port),
                token: None,
                path: "/api/v1/write",
            },
            api: "/api/v1",
            process: Some(process.pid()),
            data_dir: Some(process.directory.path().join("data")),
        }
    }

    /// A request without a body.
    pub(super) fn request(&self, method: &str, path: &str) -> Vec<u8> {
        let token = self.address.token.as_ref();
        let token =
            token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
        let host = &self.address.host;
        format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: egret-bench\r\n{token}content-length: 0\r\n\r\n")
            .into_bytes()
    }

    /// Asks once, on a connection of its own.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub(super) fn send_request(&self, method: &str, path: &str) -> Result<String> {
        let mut connection = Connection::open(&self.address.host)?;
        let request = self.request(method, path);
        let (status, text) =
            connection.exchange(&request, |body| String::from_utf8_lossy(body).into_owned())?;
        ensure!(status / 100 == 2, "{method} {path} returned {status}: {text}");
        Ok(text)
    }

    /// Has everything that is acknowledged be seen by queries, where that takes more than waiting
    /// for nothing.
    ///
    /// # Errors
    /// When it refuses.
    pub(super) fn flush(&self) -> Result<()> {
        match self.vendor {
            Vendor::VictoriaMetrics => self.send_request("GET", "/internal/force_flush").map(drop),
            Vendor::Egret | Vendor::Prometheus => Ok(()),
        }
    }

    /// Bytes that samples take on disk. VictoriaMetrics is told to flush and merge; Egret and
    /// Prometheus write a snapshot, in which everything is in blocks. `None` where the disk is not
    /// here.
    ///
    /// # Errors
    /// When it refuses.
    pub(super) fn disk_bytes(&self) -> Result<Option<u64>> {
        let Some(data) = &self.data_dir else {
            return Ok(None);
        };
        if self.vendor == Vendor::VictoriaMetrics {
            self.flush()?;
            self.send_request("GET", "/internal/force_merge")?;
            return Ok(Some(await_stable(|| disk_bytes(data))));
        }
        // What is to be merged is merged before.
        await_stable(|| disk_bytes(data));
        let reply_text = self.send_request("POST", &format!("{}/admin/tsdb/snapshot", self.api))?;
        let reply: serde_json::Value = serde_json::from_str(&reply_text)?;
        let name = reply["data"]["name"].as_str();
        let name = name.context("a snapshot without a name")?;
        Ok(Some(disk_bytes(&data.join("snapshots").join(name))))
    }
}

/// A number once it stays as it is.
fn await_stable(read_value: impl Fn() -> u64) -> u64 {
    let begun = Instant::now();
    let (mut value, mut stable_since) = (read_value(), Instant::now());
    while stable_since.elapsed() < STABLE_DURATION && begun.elapsed() < STABLE_TIMEOUT {
        std::thread::sleep(POLL_INTERVAL);
        let current = read_value();
        if current != value {
            (value, stable_since) = (current, Instant::now());
        }
    }
    value
}

pub(super) fn vendor(peer: SeriesPeer) -> Vendor {
    match peer {
        SeriesPeer::Prometheus => Vendor::Prometheus,
        SeriesPeer::VictoriaMetrics => Vendor::VictoriaMetrics,
    }
}

/// When it acknowledges, with its default settings.
pub(super) fn durability_note(peer: SeriesPeer) -> &'static str {
    match peer {
        SeriesPeer::Prometheus => {
            "acknowledges when its log is written, before it is flushed to disk"
        }
        SeriesPeer::VictoriaMetrics => {
            "has no log: acknowledges samples in memory, which are on disk some seconds later"
        }
    }
}

/// Refuses a peer that is not there.
///
/// # Errors
/// What is missing and how to get it.
pub(super) fn ensure_installed(peer: SeriesPeer) -> Result<()> {
    server_process::program_version(peer.name(), peer.name(), peer.name(), "--version").map(drop)
}

/// Starts it as it comes, in a directory of its own.
///
/// # Errors
/// When it does not start.
pub(super) async fn start_peer(peer: SeriesPeer) -> Result<ServerProcess> {
    ServerProcess::start(peer.name(), peer.name(), |command, path, port| {
        let data = path.join("data");
        let address = format!("127.0.0.1:{port}");
        match peer {
            SeriesPeer::Prometheus => {
                let file = path.join("prometheus.yml");
                std::fs::write(&file, "global: {}\n")
                    .context("write the configuration of prometheus")?;
                command
                    .arg(format!("--config.file={}", file.display()))
                    .arg(format!("--storage.tsdb.path={}", data.display()))
                    .arg(format!("--web.listen-address={address}"))
                    .args(["--web.enable-remote-write-receiver", "--web.enable-admin-api"]);
            }
            SeriesPeer::VictoriaMetrics => {
                command
                    .arg(format!("-storageDataPath={}", data.display()))
                    .arg(format!("-httpListenAddr={address}"));
            }
        }
        Ok(())
    })
    .await
}
