//! Starts write-back of what the embedded server adds to its files, a little at a time.
//!
//! A page added to a table or an index is written to the kernel at once, as zeros, and does not
//! have to reach the disk before the next checkpoint. The kernel keeps such pages for half a minute
//! and then writes all of them: hundreds of megabytes in one go, and every commit waits behind them
//! for its own few kilobytes. Here write-back is started soon after a file changes, as PostgreSQL
//! itself does for what its checkpoints write (`checkpoint_flush_after`). Nothing becomes durable
//! by it, and nothing depends on it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use egret_base::Condition;
use egret_linux::directory::{Directory, Kind, kind_of};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A round takes at most one part in this many of the time: to look at 100,000 files takes a while.
const TIME_SHARE_DIVISOR: u32 = 50;
/// Longest wait for that reason: a round that waited for a busy disk must not leave write-back to
/// the kernel.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The kernel's time for files moves in steps of at most 10 ms (`CONFIG_HZ=100`).
const MTIME_STEP: Duration = Duration::from_millis(20);

/// Rounds over the files of a running server, until [`WriteBack::stop`].
pub(crate) struct WriteBack {
    stop_signal: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl WriteBack {
    /// Begins rounds `interval` apart over the data directory `data`; none when it is zero.
    pub(crate) fn start(data: &Path, interval: Duration) -> Self {
        let stop_signal = watch::Sender::new(interval.is_zero());
        let task = tokio::spawn(run_rounds(data.join("base"), interval, stop_signal.subscribe()));
        Self { stop_signal, task }
    }

    /// Ends the rounds. When this returns, none of the server's files is open.
    pub(crate) async fn stop(self) {
        self.stop_signal.send_replace(true);
        // A round in progress runs on a thread of its own: it is waited for, not dropped.
        if let Err(error) = self.task.await {
            tracing::error!(%error, "write-back of the embedded server panicked");
        }
    }
}

async fn run_rounds(base: PathBuf, interval: Duration, mut stopping: watch::Receiver<bool>) {
    let mut since = SystemTime::now();
    let failing = Condition::new("postgres_write_back_failing", "postgres");
    while !*stopping.borrow() {
        let (started_at, now) = (Instant::now(), SystemTime::now());
        let (files, watched) = (base.clone(), stopping.clone());
        let result = tokio::task::spawn_blocking(move || {
            run_round(&files, since - MTIME_STEP, &|| *watched.borrow())
        })
        .await
        .expect("a round does not panic");
        since = now;
        match &result {
            Ok(_) => failing.recover("write-back of the embedded server works again"),
            Err(error) => {
                let message =
                    "cannot write back new data of the embedded server; the kernel does it later";
                failing.fail(error, message);
            }
        }
        let wait = interval.max((started_at.elapsed() * TIME_SHARE_DIVISOR).min(WAIT_MAX));
        // The loop reads `over`, so the result of the wait does not matter.
        let _ = tokio::time::timeout(wait, stopping.wait_for(|over| *over)).await;
    }
}

/// Starts write-back of the files below `base` that changed since then, one database after the
/// other, until `over`. Returns how many there were.
///
/// # Errors
/// The kernel's, except for what went meanwhile.
fn run_round(base: &Path, since: SystemTime, is_stopped: &dyn Fn() -> bool) -> io::Result<usize> {
    let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut started = 0;
    let Some(databases) = ignore_not_found(Directory::open(base))? else {
        return Ok(started);
    };
    for database in databases.names()? {
        let database = database?;
        if !is_number(&database) {
            continue;
        }
        let Some(files) = ignore_not_found(databases.enter(&database))? else {
            continue;
        };
        for name in files.names()? {
            if is_stopped() {
                return Ok(started);
            }
            let name = name?;
            if is_permanent(&name)
                && ignore_not_found(start_file(&files, &name, since))? == Some(true)
            {
                started += 1;
            }
        }
    }
    Ok(started)
}

/// Whether the file changed since then; if so, its write-back is started.
fn start_file(files: &Directory, name: &OsStr, since: Duration) -> io::Result<bool> {
    let stat = files.stat(name)?;
    let modified = Duration::new(
        u64::try_from(stat.st_mtime).unwrap_or_default(),
        u32::try_from(stat.st_mtime_nsec).unwrap_or_default(),
    );
    if kind_of(&stat) != Kind::File || modified < since {
        return Ok(false);
    }
    let (file, _) = files.open_file(name)?;
    egret_linux::write_back::start(&file)?;
    Ok(true)
}

/// Databases are named by their number; what is not one holds sorts and joins at work.
fn is_number(name: &OsStr) -> bool {
    name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
}

/// Files of permanent tables have names that begin with a digit; temporary ones, with a letter, may
/// never have to reach the disk.
fn is_permanent(name: &OsStr) -> bool {
    name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
}

/// What is there; a link where a directory was is none of the server's.
fn ignore_not_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match result {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests;
