//! `egret serve`: wires the layers, starts them in order, and stops them in reverse.

pub(crate) mod clock;
mod data_dir;
mod files;
mod logging;
mod reload;
mod wiring;

use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use egret_base::lifecycle::{FailedPart, Failures, Stack};
use egret_base::parts::KNOWN_PARTS;
use egret_base::{Clock, Entropy, SystemEntropy};
use egret_branches::Branches;
use egret_postgres::{EmbeddedServer, PostgresConfig};
use egret_server::ServerConfig;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::logging::LogLevel;
use self::reload::{Reloadable, Reloader};
use self::wiring::Engines;
use crate::configuration::Configuration;
use crate::output::Output;

pub use data_dir::DataDir;

/// A running Egret with all its services.
pub struct Egret {
    stack: Stack,
    /// The data directory and its lock.
    pub data_dir: DataDir,
    /// The embedded server and its branches, when Egret runs its own PostgreSQL.
    pub embedded: Option<EmbeddedParts>,
    /// What to print for the user that started it.
    pub greeting: Greeting,
    reloadable: Reloadable,
}

/// The parts that need the embedded server.
#[derive(Clone)]
pub struct EmbeddedParts {
    /// The supervised PostgreSQL server.
    pub postgres: Arc<EmbeddedServer>,
    /// The engine of the branches.
    pub branches: Branches,
}

/// The result of opening the frontends.
struct OpenedFrontends {
    /// The admin token when it was made just now.
    admin_token: Option<String>,
    reloadable: Reloadable,
}

/// Addresses and tokens, for the user that started Egret.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// URL of the HTTP frontend.
    pub url: String,
    /// Address of the PostgreSQL frontend, where there are branches to reach.
    pub proxy: Option<String>,
    /// The admin token, on the first start only.
    pub admin_token: Option<String>,
    /// Where the underlying PostgreSQL runs, and how Egret uses it, in one line.
    pub postgres: String,
}

impl Egret {
    /// Starts everything; what had started is stopped again when a later part fails.
    ///
    /// # Errors
    /// What failed, and what to do about it.
    pub async fn start(configuration: &Configuration) -> anyhow::Result<Self> {
        // Another part of the program may have installed the same provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let data_dir = DataDir::open(configuration.data_dir()?)?;
        let clock = Arc::new(clock::open_clock(&data_dir.clock_file(), &configuration.section()?));
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        data_dir.report_missing_state();
        data_dir.repair_state(clock.now())?;
        let postgres: PostgresConfig = configuration.section()?;
        let wiring = wiring::Wiring::new(configuration, clock, entropy)?;
        wiring.check_ports(match postgres.url {
            Some(_) => wiring::Frontends::Server,
            None => wiring::Frontends::ServerAndProxy,
        })?;
        let mut stack = new_stack(&data_dir);
        stack.push_eager(Arc::new(wiring.clock_service()));
        let queues = wiring.queues(&data_dir, configuration.section()?);
        queues.check_settings()?;
        stack.push_eager(Arc::new(queues.clone()));
        let series = wiring.series(&data_dir, configuration.section()?);
        series.check_settings()?;
        stack.push_eager(Arc::new(series.clone()));
        let opening = wiring.open_backend(configuration, &data_dir, postgres, &mut stack);
        let (backend, postgres_description) = opening.await?;
        let outbox = wiring.outbox(&queues, &backend);
        stack.push_dependent(Arc::new(outbox.clone()), "queue");
        let views = wiring.views(configuration.section()?, &backend, &queues);
        stack.push(Arc::new(views.clone()));
        let documents = wiring.documents(configuration.section()?, &backend, &queues);
        stack.push(Arc::new(documents.clone()));
        let engines = Engines { queues, outbox, series, views, documents };
        let embedded = backend.embedded().cloned();
        let frontends = wiring.add_frontends(&data_dir, &mut stack, engines, backend);
        let result = match frontends {
            Ok(doors) => stack.start().await.map(|()| doors).map_err(Into::into),
            Err(error) => Err(error),
        };
        let doors = match result {
            Ok(doors) => doors,
            Err(error) => {
                // The volume was opened before the stack was started.
                stack.stop().await;
                return Err(error);
            }
        };
        record_start(&data_dir, &stack, embedded.is_some());
        Ok(Self {
            greeting: Greeting {
                url: configuration.address()?.url.to_string(),
                proxy: embedded.as_ref().map(|_| wiring.proxy_address()),
                admin_token: doors.admin_token,
                postgres: postgres_description,
            },
            reloadable: doors.reloadable,
            stack,
            data_dir,
            embedded,
        })
    }

    /// Stops everything that was started, in reverse order.
    pub async fn stop(self) {
        self.stack.stop().await;
        self.data_dir.seal_state();
    }

    /// Does the same and reports the name of each part before it is stopped.
    pub(crate) async fn stop_with_progress(self, stopping: impl FnMut(&'static str)) {
        self.stack.stop_reporting(stopping).await;
        self.data_dir.seal_state();
        self.data_dir.reserve_disk_space();
    }
}

/// How long a part may take to stop before it is said what is waited for.
const STOP_NOTICE_INTERVAL: Duration = Duration::from_secs(2);

/// Stops, and prints which part is waited for when that takes long or the user asks again.
pub(crate) async fn stop(egret: Egret, signals: &mut Signals, output: Output) {
    // Nothing is read again while parts stop.
    signals.reload = None;
    output.print_remark(match egret.embedded {
        Some(_) => "stopping (branches are kept and run again at the next start)",
        None => "stopping",
    });
    let part = Cell::new("");
    let mut reported = "";
    let stopping = egret.stop_with_progress(|name| part.set(name));
    let mut stopping = std::pin::pin!(stopping);
    loop {
        let is_requested = tokio::select! {
            () = &mut stopping => return,
            () = signals.wait() => true,
            () = tokio::time::sleep(STOP_NOTICE_INTERVAL) => false,
        };
        if is_requested || reported != part.get() {
            reported = part.get();
            output.print_remark(&format!("waiting for {}", pending_work(reported)));
        }
    }
}

/// What a part does while it stops.
fn pending_work(part: &str) -> &str {
    match part {
        "server" => "requests in progress",
        "proxy" => "sessions through the proxy to end",
        "monitor" => "alerts to be sent",
        "branches" => "the servers of the branches to stop",
        "views" => "running refreshes of views",
        "documents" => "running writes of documents",
        "postgres" => "the embedded server to write its last checkpoint",
        "volume" => "the volume to be written to disk",
        other => other,
    }
}

/// The signals that ask for a stop, and the one that asks for a reload.
pub struct Signals {
    interrupt: Option<Signal>,
    terminate: Signal,
    hangup: Signal,
    ends_with_terminal: bool,
    reload: Option<ReloadTask>,
}

impl Signals {
    /// Takes the signals over from now on.
    ///
    /// # Errors
    /// The operating system's.
    pub fn listen() -> anyhow::Result<Self> {
        // Under nohup it outlives its terminal.
        let ends_with_terminal = !is_ignored(SignalKind::hangup()) && has_terminal();
        // A shell without job control starts programs in its background so that Ctrl-C does not
        // reach them.
        let interrupt = (!is_ignored(SignalKind::interrupt()))
            .then(|| signal(SignalKind::interrupt()))
            .transpose()
            .context("listen for SIGINT")?;
        Ok(Self {
            ends_with_terminal,
            reload: None,
            interrupt,
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
            hangup: signal(SignalKind::hangup()).context("listen for SIGHUP")?,
        })
    }

    /// Waits until a stop is asked for: by SIGINT, unless it was ignored at the start, SIGTERM or a
    /// terminal that is gone.
    pub async fn wait(&mut self) {
        loop {
            tokio::select! {
                () = await_signal(&mut self.interrupt) => return,
                _ = self.terminate.recv() => return,
                _ = self.hangup.recv() => {
                    if self.ends_with_terminal && !has_terminal() {
                        return;
                    }
                }
            }
        }
    }
}

/// Waits for a signal; for ever where none is listened for.
pub(crate) async fn await_signal(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether this process was started with a signal ignored (proc_pid_status(5)). Listening for it
/// would end that.
pub(crate) fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored_mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    // Bit 0 is signal 1.
    let bit = kind.as_raw_value() - 1;
    ignored_mask.is_some_and(|mask| (mask >> bit) & 1 != 0)
}

/// Whether the process has a terminal that controls it. After a hang-up it has none.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Reads what may change again, at every SIGHUP until the stop.
fn reload_on_hangup(
    egret: &Egret,
    configuration: &Configuration,
    log_level: LogLevel,
) -> anyhow::Result<ReloadTask> {
    let mut hangup = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
    let reloader = Reloader {
        configuration: configuration.clone(),
        log_level,
        parts: egret.reloadable.clone(),
    };
    Ok(ReloadTask(tokio::spawn(async move {
        reloader.run(&mut hangup).await;
    })))
}

/// Ends with the value.
struct ReloadTask(tokio::task::JoinHandle<()>);

impl Drop for ReloadTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs until a signal asks for a stop.
pub(crate) async fn run(configuration: &Configuration, output: Output) -> anyhow::Result<()> {
    let Some((egret, mut signals)) = start(configuration, output).await? else {
        return Ok(());
    };
    signals.wait().await;
    stop(egret, &mut signals, output).await;
    Ok(())
}

/// Starts with logging and greets; `None` when a signal came before it was up.
pub(crate) async fn start(
    configuration: &Configuration,
    output: Output,
) -> anyhow::Result<Option<(Egret, Signals)>> {
    let log_level = logging::start(&configuration.section()?)?;
    let server: ServerConfig = configuration.section()?;
    files::raise_limit(server.connections_max);
    let mut signals = Signals::listen()?;
    let starting = Egret::start(configuration);
    // A start is not given up in the middle: it is finished, then stopped.
    let mut starting = std::pin::pin!(starting);
    let (started, stop_requested) = tokio::select! {
        started = &mut starting => (started, false),
        () = signals.wait() => {
            output.print_remark("stopping as soon as the start has finished");
            (starting.await, true)
        }
    };
    let egret = started?;
    if stop_requested {
        stop(egret, &mut signals, output).await;
        return Ok(None);
    }
    signals.reload = Some(reload_on_hangup(&egret, configuration, log_level)?);
    print_greeting(&egret, output)?;
    Ok(Some((egret, signals)))
}

/// A stack without services, in which engines whose files are gone have failed already.
fn new_stack(data_dir: &DataDir) -> Stack {
    let stack = Stack::with_failures(Failures::with_hidden_directory(data_dir.data_dir()));
    if let Some(reason) = data_dir.list_error() {
        stack.failures().record(KNOWN_PARTS, reason);
    }
    for (part, reason) in data_dir.missing_engines() {
        stack.failures().record(part, reason);
    }
    stack
}

/// Keeps for the next start what there is now, and logs what could not start.
fn record_start(data_dir: &DataDir, stack: &Stack, has_postgres: bool) {
    if let Err(error) = data_dir.record_present_parts(stack.failures(), has_postgres) {
        tracing::warn!("{error:#}");
    }
    data_dir.reserve_disk_space();
    for failed in stack.failures().parts() {
        let FailedPart { part, reason, .. } = failed;
        tracing::error!(part, reason, "a service cannot start; the others serve");
    }
}

fn print_greeting(egret: &Egret, output: Output) -> anyhow::Result<()> {
    let greeting = &egret.greeting;
    let failed_parts = egret.stack.failed_parts();
    let token_file = egret.data_dir.admin_token_file();
    // Standard output of a service is its journal, which others may read.
    let is_terminal = std::io::stdout().is_terminal();
    let shown_token = greeting.admin_token.as_ref().filter(|_| is_terminal);
    if output.is_json() {
        let answer = serde_json::json!({
            "url": greeting.url,
            "proxy": greeting.proxy,
            "postgres": greeting.postgres,
            "data_dir": egret.data_dir.data_dir(),
            "admin_token": shown_token,
            "admin_token_file": token_file,
            "failed": failed_parts.iter().map(|failed| &failed.part).collect::<Vec<_>>(),
        });
        return Ok(output.print_json(&answer)?);
    }
    let state =
        if failed_parts.is_empty() { "is ready" } else { "serves, but some parts have failed" };
    let mut text = format!("egret {state}\n  API and docs  {}docs\n", greeting.url);
    for FailedPart { part, reason, remedy } in &failed_parts {
        text.push_str(&format!("  failed        {part}: {reason}\n                {remedy}\n"));
    }
    if let Some(proxy) = &greeting.proxy {
        text.push_str(&format!("  proxy         {proxy}\n"));
    }
    text.push_str(&format!(
        "  postgres      {}\n  data          {}\n",
        greeting.postgres,
        egret.data_dir.data_dir().display(),
    ));
    if let Some(token) = shown_token {
        text.push_str(&format!(
            "  admin token   {token}\n                (shown once; `egret` on this machine reads it from the data directory)\n"
        ));
    } else if greeting.admin_token.is_some() {
        text.push_str(&format!("  admin token   in {}\n", token_file.display()));
    }
    Ok(output.print_text(&text)?)
}
