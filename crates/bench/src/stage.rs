//! The stage: all that the runner gives a scenario to work with.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::attach::Profiler;
use crate::environment::PostgresFacts;
use crate::private::PrivateServer;
use crate::progress::Progress;
use crate::refusal;
use crate::result::Program;
use crate::server::Server;
use crate::window::Window;

/// The surroundings of a measurement.
pub struct Stage {
    /// The Egret to measure, private or running; `None` where the scenario was given neither.
    pub server: Option<Server>,
    /// The private Egret, where there is one; [`Stage::server`] is its client.
    pub private_server: Option<PrivateServer>,
    /// Where schedules and values come from; the same for every run.
    pub seed: u64,
    /// Progress line on the terminal.
    pub progress: Progress,
    /// What is measured, filled in by [`Scenario::prepare`](crate::scenario::Scenario::prepare).
    pub subject: Subject,
    /// Cores that the generator may use: its threads.
    pub generator_cores: u32,
    /// Operations that [`load::run_load`](crate::load::run_load) has begun so far, in warm-ups and
    /// in all runs.
    pub operations_begun: u64,
    pub(crate) profile: bool,
    /// What starts a private Egret, and settings of the command line for it.
    pub(crate) program: PathBuf,
    pub(crate) settings: Vec<(String, String)>,
}

/// The system that is measured.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Its first processes on this machine, so that its processor time is not taken for a
    /// stranger's. Of a [`Server`] on this machine known beforehand.
    pub processes: Vec<u32>,
    /// Where its data is on this machine, for file system and fsync latency. Of a [`Server`] on
    /// this machine known beforehand.
    pub data_dir: Option<PathBuf>,
    /// The build of the Egret that is measured, where one is.
    pub egret: Option<Program>,
    /// Facts about its PostgreSQL.
    pub postgres: Option<PostgresFacts>,
    /// What identifies the data: a hash, or its generator and size.
    pub data_set: String,
}

impl Stage {
    /// The Egret to measure.
    ///
    /// # Errors
    /// When there is none.
    pub fn server(&self) -> Result<&Server> {
        self.server.as_ref().ok_or_else(|| {
            refusal::usage("no egret server to measure: give --private or --server URL")
        })
    }

    /// Ends the private Egret, and starts one with these settings (`section.key`, value).
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn start_private_server(
        &mut self,
        mut settings: Vec<(String, String)>,
    ) -> Result<()> {
        self.progress.show("starting a private egret");
        self.private_server = None;
        // The last one holds.
        settings.extend(self.settings.iter().cloned());
        let private = PrivateServer::start(&self.program, &settings).await?;
        self.server = Some(private.server().clone());
        self.subject.processes = vec![private.pid()];
        self.subject.data_dir.clone_from(&private.server().endpoint().data_dir);
        self.private_server = Some(private);
        Ok(())
    }

    /// Begins the measured window. `expected` is its length where that is known, so that a profile
    /// can end with it.
    ///
    /// # Errors
    /// When `/proc` cannot be read, or a profile is wanted and there is no Egret.
    pub(crate) fn open_window(&self, expected: Option<Duration>) -> Result<Window> {
        let profiler = if self.profile {
            Some(Profiler::start(self.server()?.clone(), expected))
        } else {
            None
        };
        Window::open(self.subject.processes.clone(), profiler)
    }
}
