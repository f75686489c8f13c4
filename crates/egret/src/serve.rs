//! `egret serve`: wires the layers, starts them in order, and stops them in reverse.

pub(crate) mod clock;
mod files;
mod home;
mod logging;
mod parts;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use egret_base::lifecycle::Stack;
use egret_base::{Clock, Entropy, SystemEntropy};
use egret_branches::Branches;
use egret_postgres::{EmbeddedServer, PostgresConfig};
use egret_server::ServerConfig;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::parts::Engines;
use crate::configuration::Configuration;
use crate::output::Output;

pub use home::Home;

/// A running Egret.
pub struct Egret {
    stack: Stack,
    /// Everything that is kept on disk.
    pub home: Home,
    /// What it is made of when it runs its own PostgreSQL.
    pub embedded: Option<Embedded>,
    /// What to tell whoever started it.
    pub greeting: Greeting,
}

/// The parts that need the embedded server.
#[derive(Clone)]
pub struct Embedded {
    /// The server.
    pub postgres: Arc<EmbeddedServer>,
    /// The engine.
    pub branches: Branches,
}

/// Where to look, for whoever started Egret.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// The HTTP door.
    pub url: String,
    /// The PostgreSQL door, where there are branches to reach.
    pub proxy: Option<String>,
    /// The admin token, on the first start only.
    pub admin_token: Option<String>,
    /// The server underneath.
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
        let home = Home::open(configuration.data_dir()?)?;
        let clock = Arc::new(clock::open(&home.clock(), &configuration.section()?));
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        home.mend_state(clock.now())?;
        let postgres: PostgresConfig = configuration.section()?;
        let parts = parts::Parts::new(configuration, clock, entropy)?;
        parts.check_ports(match postgres.url {
            Some(_) => parts::Doors::Server,
            None => parts::Doors::ServerAndProxy,
        })?;
        let mut stack = Stack::default();
        stack.push_eager(Arc::new(parts.clock_service()));
        let queues = parts.queues(&home, configuration.section()?);
        stack.push_eager(Arc::new(queues.clone()));
        let series = parts.series(&home, configuration.section()?);
        stack.push_eager(Arc::new(series.clone()));
        let found = parts.underneath(configuration, &home, postgres, &mut stack);
        let (underneath, told) = found.await?;
        let outbox = parts.outbox(&queues, &underneath);
        stack.push(Arc::new(outbox.clone()));
        let views = parts.views(configuration.section()?, &underneath, &queues);
        stack.push(Arc::new(views.clone()));
        let documents = parts.documents(configuration.section()?, &underneath, &queues);
        stack.push(Arc::new(documents.clone()));
        let engines = Engines {
            queues,
            outbox,
            series,
            views,
            documents,
        };
        let embedded = underneath.embedded().cloned();
        let doors = parts.doors(&home, &mut stack, engines, underneath);
        let started = match doors {
            Ok(token) => stack.start().await.map(|()| token).map_err(Into::into),
            Err(error) => Err(error),
        };
        let admin_token = match started {
            Ok(token) => token,
            Err(error) => {
                // The volume was opened before the stack was started.
                stack.stop().await;
                return Err(error);
            }
        };
        Ok(Self {
            greeting: Greeting {
                url: configuration.address()?.url.to_string(),
                proxy: embedded.as_ref().map(|_| parts.proxy_address()),
                admin_token,
                postgres: told,
            },
            stack,
            home,
            embedded,
        })
    }

    /// Stops everything that was started, last first.
    pub async fn stop(self) {
        self.stack.stop().await;
    }

    /// Does the same and tells the name of each part before.
    pub async fn stop_telling(self, stopping: impl FnMut(&'static str)) {
        self.stack.stop_telling(stopping).await;
    }
}

/// How long a part may take to stop before it is said what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Stops, and says what is waited for when that takes long or the user asks again.
pub(crate) async fn stop(egret: Egret, signals: &mut StopSignals, output: Output) {
    output.remark(match egret.embedded {
        Some(_) => "stopping (branches are kept and run again at the next start)",
        None => "stopping",
    });
    let part = Cell::new("");
    let mut said = "";
    let stopping = egret.stop_telling(|name| part.set(name));
    let mut stopping = std::pin::pin!(stopping);
    loop {
        let asked = tokio::select! {
            () = &mut stopping => return,
            () = signals.wait() => true,
            () = tokio::time::sleep(PATIENCE) => false,
        };
        if asked || said != part.get() {
            said = part.get();
            output.remark(&format!("waiting for {}", still_to_do(said)));
        }
    }
}

/// What a part does while it stops.
fn still_to_do(part: &str) -> &str {
    match part {
        "server" => "requests that are being answered",
        "proxy" => "sessions through the proxy to end",
        "monitor" => "alerts to be told",
        "branches" => "the servers of the branches to stop",
        "views" => "refreshes of views that have begun",
        "documents" => "writes of documents that have begun",
        "postgres" => "the embedded server to write its last checkpoint",
        "volume" => "the volume to be written to disk",
        other => other,
    }
}

/// The signals that ask for a stop.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Takes the signals over from now on.
    ///
    /// # Errors
    /// The operating system's.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("listen for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
            hangup: signal(SignalKind::hangup()).context("listen for SIGHUP")?,
        })
    }

    /// Waits for the first of them.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            // The terminal is gone.
            _ = self.hangup.recv() => {}
        }
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
) -> anyhow::Result<Option<(Egret, StopSignals)>> {
    logging::start(&configuration.section()?)?;
    let server: ServerConfig = configuration.section()?;
    files::raise_limit(server.connections_max);
    let mut signals = StopSignals::listen()?;
    let starting = Egret::start(configuration);
    // A start is not given up in the middle: it is finished, then stopped.
    let mut starting = std::pin::pin!(starting);
    let (started, asked) = tokio::select! {
        started = &mut starting => (started, false),
        () = signals.wait() => {
            output.remark("stopping as soon as the start is through: what it has begun is finished first");
            (starting.await, true)
        }
    };
    let egret = started?;
    if asked {
        stop(egret, &mut signals, output).await;
        return Ok(None);
    }
    greet(&egret, output)?;
    Ok(Some((egret, signals)))
}

fn greet(egret: &Egret, output: Output) -> anyhow::Result<()> {
    let greeting = &egret.greeting;
    if output.is_json() {
        let answer = serde_json::json!({
            "url": greeting.url,
            "proxy": greeting.proxy,
            "postgres": greeting.postgres,
            "data_dir": egret.home.data_dir(),
            "admin_token": greeting.admin_token,
        });
        return Ok(output.json(&answer)?);
    }
    let mut text = format!("egret is ready\n  API and docs  {}docs\n", greeting.url);
    if let Some(proxy) = &greeting.proxy {
        text.push_str(&format!("  proxy         {proxy}\n"));
    }
    text.push_str(&format!(
        "  postgres      {}\n  data          {}\n",
        greeting.postgres,
        egret.home.data_dir().display(),
    ));
    if let Some(token) = &greeting.admin_token {
        text.push_str(&format!(
            "  admin token   {token}\n                (shown once; `egret` on this machine reads it from the data directory)\n"
        ));
    }
    Ok(output.text(&text)?)
}
