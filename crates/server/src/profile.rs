//! CPU profiles on demand: where the program spends its time, as a flame graph or folded stacks.
//!
//! Sampling takes a signal [`FREQUENCY_HZ`] times per second of processor time; one profile runs
//! at a time. It costs nothing while none does.

use std::fmt::Write;
use std::time::Duration;

use egret_base::{CodedError, Kind, Limit, LimitExceeded};
use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use tokio::sync::Semaphore;

/// Samples per second of processor time; a prime, so as not to beat with periodic work.
const FREQUENCY_HZ: i32 = 199;

/// Libraries inside which a stack cannot be walked safely from a signal handler.
const BLOCKED_LIBRARIES: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// The format of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProfileFormat {
    /// An SVG with interactive frames.
    Flamegraph,
    /// One line per stack: frames from the root separated by `;`, a space, the number of samples.
    Folded,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Another one is being taken.
    #[error("another profile is being taken: try again when it is done")]
    Running,
    /// Longer than allowed, or no time at all.
    #[error("seconds: {0}")]
    Duration(LimitExceeded),
    /// No time at all.
    #[error("seconds: 0 is too short: ask for at least 1")]
    Zero,
    /// The profiler could not take or write samples.
    #[error("the profiler failed: {0}")]
    Profiler(#[from] pprof::Error),
}

impl CodedError for ProfileError {
    fn code(&self) -> &'static str {
        match self {
            ProfileError::Running => "profile_running",
            ProfileError::Duration(_) | ProfileError::Zero => "profile_duration",
            ProfileError::Profiler(_) => "profile_failed",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            ProfileError::Running => Kind::Conflict,
            ProfileError::Duration(_) | ProfileError::Zero => Kind::Invalid,
            ProfileError::Profiler(_) => Kind::Internal,
        }
    }

    fn retryable(&self) -> bool {
        matches!(self, ProfileError::Running)
    }
}

/// The one profiler of the process, for the sampling timer is the process's.
static PROFILER: Semaphore = Semaphore::const_new(1);

/// Samples the program for `seconds` and renders the profile.
///
/// # Errors
/// [`ProfileError::Duration`] beyond `duration_max`, [`ProfileError::Running`] when another
/// profile is being taken.
pub async fn take(
    seconds: u64,
    format: ProfileFormat,
    duration_max: Duration,
) -> Result<Vec<u8>, ProfileError> {
    if seconds == 0 {
        return Err(ProfileError::Zero);
    }
    Limit::new("server.profile_duration_max (in seconds)", duration_max.as_secs())
        .check(seconds)
        .map_err(ProfileError::Duration)?;
    let _permit = PROFILER.try_acquire().map_err(|_| ProfileError::Running)?;
    let guard = ProfilerGuardBuilder::default()
        .frequency(FREQUENCY_HZ)
        .blocklist(&BLOCKED_LIBRARIES)
        .build()?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    // Naming the addresses reads debug information and may take a second.
    tokio::task::spawn_blocking(move || render_report(&guard, format))
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

fn render_report(
    guard: &ProfilerGuard<'_>,
    format: ProfileFormat,
) -> Result<Vec<u8>, ProfileError> {
    let report = guard.report().build()?;
    match format {
        ProfileFormat::Folded => Ok(fold_stacks(&report).into_bytes()),
        ProfileFormat::Flamegraph if report.data.is_empty() => Ok(EMPTY_SVG.into()),
        ProfileFormat::Flamegraph => {
            let mut svg = Vec::new();
            report.flamegraph(&mut svg)?;
            Ok(svg)
        }
    }
}

/// What an idle program's flame graph looks like.
const EMPTY_SVG: &str = r##"<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" width="640" height="48"><text x="12" y="30" font-family="sans-serif">no samples: the program used no processor time</text></svg>
"##;

fn fold_stacks(report: &pprof::Report) -> String {
    let mut lines: Vec<String> = report
        .data
        .iter()
        .map(|(frames, samples)| {
            let mut line = frames.thread_name_or_id();
            for symbol in frames.frames.iter().rev().flat_map(|frame| frame.iter().rev()) {
                write!(line, ";{symbol}").expect("writing to a string cannot fail");
            }
            write!(line, " {samples}").expect("writing to a string cannot fail");
            line
        })
        .collect();
    lines.sort_unstable();
    lines.push(String::new());
    lines.join("\n")
}
