//! Two commands run in turn, again and again: what changes on the machine meets both alike.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use egret_bench_cli::CompareArgs;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

use super::environment::{differences, is_allowed};

use super::Mismatch;
use crate::environment::redact;
use crate::result::ResultFile;

const PLACEHOLDER: &str = "{out}";
const LOG_LINES_SHOWN: usize = 12;
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// A scenario that was interrupted removes what it made and stops its private Egret.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// The name of the signal that asked for an end, once one has.
pub type Interruption = OnceLock<&'static str>;

/// A command split into words, ready to be given the file to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PairCommand {
    words: Vec<String>,
}

impl PairCommand {
    /// Splits a command as a shell would, quotes and backslashes included. Nothing else of a shell
    /// exists: no variables, no pipes.
    ///
    /// # Errors
    /// When a quote is not closed or nothing is left.
    pub(crate) fn parse(command: &str) -> Result<Self> {
        let words =
            shlex::split(command).context("a quote or a backslash of a command is not closed")?;
        ensure!(!words.is_empty(), "an empty command cannot be run");
        Ok(Self { words })
    }

    /// The command as it may be shown: passwords are masked.
    pub(crate) fn redacted(&self) -> String {
        redact(&self.words)
    }

    /// The words with the file put in: in place of `{out}`, else behind as `--out FILE`.
    pub(crate) fn with_out(&self, file: &str) -> Vec<String> {
        let has_placeholder = self.words.iter().any(|word| word.contains(PLACEHOLDER));
        let mut words: Vec<String> =
            self.words.iter().map(|word| word.replace(PLACEHOLDER, file)).collect();
        if !has_placeholder {
            words.extend(["--out".to_owned(), file.to_owned()]);
        }
        words
    }
}

/// Which side runs first in each pair. Every two pairs hold both orders, and which comes first is
/// drawn: neither side profits from a machine that warms up or tires.
pub fn orders(pairs: usize, seed: u64) -> Vec<[usize; 2]> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut orders = Vec::with_capacity(pairs + 1);
    while orders.len() < pairs {
        let order = if random.random() { [0, 1] } else { [1, 0] };
        orders.extend([order, [order[1], order[0]]]);
    }
    orders.truncate(pairs);
    orders
}

/// Runs both commands of `args` and returns the results of A and of B. Once `interruption` names a
/// signal, the command that runs is asked to end and waited for.
///
/// # Errors
/// When a command cannot be run, fails, or writes no result file that fits the others; or when it
/// was interrupted.
pub fn measure(
    args: &CompareArgs,
    progress: &mut dyn FnMut(&str),
    interruption: &Interruption,
) -> Result<[Vec<ResultFile>; 2]> {
    let [a, b] = args.run.as_slice() else {
        bail!("--run is needed twice, for A and for B; it was given {} times", args.run.len());
    };
    let programs = [PairCommand::parse(a)?, PairCommand::parse(b)?];
    let temporary = tempfile::tempdir().context("cannot make a temporary directory")?;
    let directory = match &args.keep {
        Some(keep_dir) => {
            create_empty_dir(keep_dir)?;
            keep_dir.clone()
        }
        None => temporary.path().to_owned(),
    };
    let pairs = args.pairs as usize;
    let mut results: [Vec<ResultFile>; 2] = [Vec::new(), Vec::new()];
    for (index, order) in orders(pairs, args.seed).into_iter().enumerate() {
        let mut seconds = [0.0; 2];
        for side in order {
            let started = Instant::now();
            let result = Attempt {
                program: &programs[side],
                side: ["A", "B"][side],
                number: index + 1,
                directory: &directory,
                interruption,
            }
            .run()?;
            seconds[side] = started.elapsed().as_secs_f64();
            ensure_comparable(&results, &result, index + 1, side, &args.allow_different)?;
            results[side].push(result);
        }
        progress(&format!(
            "pair {} of {pairs}: A took {:.1} s, B {:.1} s",
            index + 1,
            seconds[0],
            seconds[1]
        ));
    }
    Ok(results)
}

/// A directory for the results of this comparison alone.
fn create_empty_dir(keep: &Path) -> Result<()> {
    fs::create_dir_all(keep).with_context(|| format!("cannot make {}", keep.display()))?;
    let mut entries =
        fs::read_dir(keep).with_context(|| format!("cannot read {}", keep.display()))?;
    ensure!(
        entries.next().is_none(),
        "{} is not empty: name a new directory to keep the results in",
        keep.display()
    );
    Ok(())
}

/// Refuses at the first pair what would be refused after the last.
fn ensure_comparable(
    results: &[Vec<ResultFile>; 2],
    result: &ResultFile,
    number: usize,
    side: usize,
    allowed: &[String],
) -> Result<()> {
    if let Some(first) = results[side].first() {
        let mut changed = differences(first, result).into_iter();
        let disallowed = changed.find(|difference| !is_allowed(&difference.name, allowed));
        if let Some(difference) = disallowed {
            bail!(
                "{} changed while side {} was measured: {} in its first run, {} in pair \
                 {number}; use --allow-different {0} if this is intended",
                difference.name,
                ["A", "B"][side],
                difference.a,
                difference.b
            );
        }
    }
    if let (Some(other), true) = (results[1 - side].first(), number == 1) {
        let (a, b) = if side == 1 { (other, result) } else { (result, other) };
        let mut differences = differences(a, b);
        differences.retain(|difference| !is_allowed(&difference.name, allowed));
        if !differences.is_empty() {
            return Err(Mismatch { differences }.into());
        }
    }
    Ok(())
}

/// One run of one side.
struct Attempt<'a> {
    program: &'a PairCommand,
    side: &'static str,
    number: usize,
    directory: &'a Path,
    interruption: &'a Interruption,
}

impl Attempt<'_> {
    fn run(&self) -> Result<ResultFile> {
        let out = self.output_path("json");
        let log = self.output_path("log");
        let words = self.program.with_out(out.to_str().context("a path is not UTF-8")?);
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let errors = output.try_clone().context("cannot share the log")?;
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot run `{}` of side {}", words[0], self.side))?;
        let status = self.await_exit(child)?;
        let command = || redact(&words);
        if !status.success() {
            bail!(
                "run {} of {} failed with {status}\n  {}\n{}",
                self.number,
                self.side,
                command(),
                last_lines(&log)
            );
        }
        if !out.exists() {
            bail!(
                "run {} of {} succeeded but wrote no result file\n  {}\nput {PLACEHOLDER} where \
                 the command expects the file name",
                self.number,
                self.side,
                command()
            );
        }
        ResultFile::read(&out)
    }

    /// Waits for the end of a command; after an interruption until it has cleaned up behind itself.
    fn await_exit(&self, mut child: Child) -> Result<ExitStatus> {
        let status = loop {
            if let Some(status) = child.try_wait().context("wait for the command")? {
                break status;
            }
            if self.interruption.get().is_some() {
                // Fails only when it has just ended.
                let _ = kill_process(Pid::from_child(&child), Signal::TERM);
                break await_or_kill(child, STOP_TIMEOUT)?;
            }
            thread::sleep(POLL_INTERVAL);
        };
        match self.interruption.get() {
            None => Ok(status),
            Some(signal) => bail!("interrupted by {signal} in pair {}", self.number),
        }
    }

    fn output_path(&self, extension: &str) -> PathBuf {
        let mut name = OsString::from(format!("{:03}-", self.number));
        name.push(self.side.to_lowercase());
        self.directory.join(name).with_extension(extension)
    }
}

/// Waits for the end of a process that was asked to end; one that does not in this time is killed.
fn await_or_kill(mut child: Child, timeout: Duration) -> Result<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < timeout {
        if let Some(status) = child.try_wait().context("wait for the command")? {
            return Ok(status);
        }
        thread::sleep(POLL_INTERVAL);
    }
    child.kill().context("kill the command")?;
    child.wait().context("wait for the command")
}

fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.len().saturating_sub(LOG_LINES_SHOWN);
    let indented_lines: Vec<String> =
        lines[start..].iter().map(|line| format!("  | {line}")).collect();
    indented_lines.join("\n")
}

#[cfg(test)]
mod tests;
