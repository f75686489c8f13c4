//! Files kept beside a result: profile and flame graph of the server, plans of the statements.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::server::Server;

/// Profiles are fetched in pieces of this many seconds, because not every window knows its end and
/// a server takes one profile at a time, of limited length.
const PIECE_SECONDS: u64 = 5;

/// Fetches the server's CPU profile while a window is open.
pub struct Profiler {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<BTreeMap<String, u64>>>,
}

impl Profiler {
    /// Starts to fetch profiles; with `expected`, for no longer than the window lasts.
    pub(crate) fn start(server: Server, expected: Option<Duration>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let begun = Instant::now();
            let mut stacks = BTreeMap::new();
            while !*stopped.borrow() {
                let remaining_seconds = expected.map_or(PIECE_SECONDS, |expected| {
                    expected.saturating_sub(begun.elapsed()).as_secs()
                });
                if remaining_seconds == 0 && !stacks.is_empty() {
                    break;
                }
                let seconds = remaining_seconds.clamp(1, PIECE_SECONDS);
                let path = format!("debug/profile?seconds={seconds}&format=folded");
                let piece = server.get_text(&path).await.context("profile the server")?;
                add_folded_stacks(&mut stacks, &piece);
            }
            Ok(stacks)
        });
        Self { stop, task }
    }

    /// Waits for the piece that is being taken and returns folded stacks.
    pub(crate) async fn finish(self) -> Result<String> {
        // The task may have ended by itself.
        let _ = self.stop.send(true);
        let stacks = self.task.await.context("profile the server")??;
        let lines = stacks.into_iter().map(|(stack, count)| format!("{stack} {count}\n"));
        Ok(lines.collect())
    }
}

/// Adds folded stacks (`frame;frame;frame count` per line) to a sum.
fn add_folded_stacks(stacks: &mut BTreeMap<String, u64>, folded: &str) {
    for line in folded.lines() {
        if let Some((stack, count)) = line.rsplit_once(' ')
            && let Ok(count) = count.parse::<u64>()
        {
            *stacks.entry(stack.to_owned()).or_default() += count;
        }
    }
}

/// Where attachments of `result` go, by kind.
pub(crate) struct Attachments<'a> {
    result: &'a Path,
    file_names: BTreeMap<String, String>,
}

impl<'a> Attachments<'a> {
    pub(crate) fn for_result(result: &'a Path) -> Self {
        Self { result, file_names: BTreeMap::new() }
    }

    /// Keeps folded stacks, and the flame graph made of them.
    pub(crate) fn write_profile(&mut self, folded: &str) -> Result<()> {
        self.write_file("profile", "folded.txt", folded.as_bytes())?;
        if folded.is_empty() {
            // A server that had nothing to do has no flame graph.
            return Ok(());
        }
        let mut options = inferno::flamegraph::Options::default();
        options.title = "CPU of the Egret server during the measured window".to_owned();
        let mut svg = Vec::new();
        inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut svg)
            .context("draw the flame graph")?;
        self.write_file("flamegraph", "flamegraph.svg", &svg)
    }

    pub(crate) fn write_plans(&mut self, plans: &[Value]) -> Result<()> {
        let text = serde_json::to_vec_pretty(plans)?;
        self.write_file("explain", "explain.json", &text)
    }

    /// The names of the files by kind, as the result has them.
    pub(crate) fn into_file_names(self) -> BTreeMap<String, String> {
        self.file_names
    }

    fn write_file(&mut self, kind: &str, extension: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(extension);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.file_names.insert(kind.to_owned(), name.into_owned());
        Ok(())
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.result.with_extension(extension)
    }
}
