//! What a measurement depends on besides the program: machine, file system, PostgreSQL, neighbours.

mod machine;
mod postgres;
mod program;
mod redact;

use std::time::Duration;

use crate::result::{Environment, Program};
use crate::stage::Subject;
use crate::window::WindowObservation;
use anyhow::Result;

use machine::Mount;
pub use postgres::PostgresFacts;
pub(crate) use postgres::SETTINGS_QUERY;
pub(crate) use redact::{command_line, redact, redact_setting};

/// The generator's processor time per core given to it, above which it may be what is measured.
pub(crate) const GENERATOR_SHARE_MAX: f64 = 0.7;

/// Share of the machine used by other processes above which they may decide the result.
const OTHER_SHARE_MAX: f64 = 0.1;

/// What does not change from run to run.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    environment: Environment,
    warnings: Vec<String>,
}

impl Machine {
    /// Looks at machine, programs and subject; measures the fsync latency.
    ///
    /// # Errors
    /// When the running binary cannot be read.
    pub(crate) fn examine(subject: &Subject, seed: u64) -> Result<Self> {
        let mut warnings = Vec::new();
        let mount =
            subject.data_dir.as_deref().and_then(|data_dir| Mount::containing(data_dir).ok());
        let fsync = match &subject.data_dir {
            None => Err(anyhow::anyhow!("the data directory is not on this machine")),
            Some(data_dir) => machine::fsync_latency(data_dir),
        };
        if let Err(error) = &fsync {
            warnings.push(format!("cannot measure the fsync latency: {error:#}"));
        }
        let generator = Program::current()?;
        let egret = subject.egret.clone().unwrap_or_else(|| generator.clone());
        if [&egret, &generator].iter().any(|program| program.build_profile == "dev") {
            warnings
                .push("this is a dev build: publish only results of a release build".to_owned());
        }
        let (file_system, mount_options) = mount.map_or_else(
            || ("unknown".to_owned(), String::new()),
            |mount| (mount.kind, mount.options),
        );
        let postgres = subject.postgres.clone();
        let environment = Environment {
            cpu_model: machine::cpu_model(),
            cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
            memory_bytes: machine::memory_bytes(),
            kernel: machine::kernel(),
            os: machine::os(),
            file_system,
            mount_options,
            fsync_ms: fsync.ok().map(crate::record::millis),
            postgres_version: postgres.as_ref().map(|facts| facts.version.clone()),
            postgres_settings: postgres.map(|facts| facts.settings).unwrap_or_default(),
            egret_version: egret.version,
            egret_commit: egret.commit,
            binary_sha256: egret.binary_sha256,
            build_profile: egret.build_profile,
            generator: Some(generator),
            data_set: subject.data_set.clone(),
            seed,
            other_cpu: 0.0,
            kernel_cpu: None,
            other_processes: Default::default(),
            generator_cpu: 0.0,
        };
        Ok(Self { environment, warnings })
    }

    /// The environment with the observations of one run, and the warnings that follow from them.
    pub(crate) fn with_observation(
        &self,
        observed: &WindowObservation,
        generator_cores: u32,
    ) -> (Environment, Vec<String>) {
        let cores = |time: Duration| time.as_secs_f64() / observed.wall.as_secs_f64().max(1e-9);
        let mut environment = self.environment.clone();
        environment.generator_cpu = cores(observed.usage.own);
        environment.kernel_cpu = Some(cores(observed.usage.kernel));
        environment.other_cpu = cores(observed.usage.other);
        environment.other_processes = observed.usage.named_shares(observed.wall);
        let mut warnings = self.warnings.clone();
        let allowed = GENERATOR_SHARE_MAX * f64::from(generator_cores);
        if environment.generator_cpu > allowed {
            warnings.push(format!(
                "the generator used {:.2} of the {generator_cores} cores given to it: it may be \
                 the bottleneck; give it more threads or another machine",
                environment.generator_cpu
            ));
        }
        if environment.other_cpu > OTHER_SHARE_MAX * environment.cpus as f64 {
            warnings.push(format!(
                "other processes used {:.2} cores during the measurement: measure on a quiet \
                 machine",
                environment.other_cpu
            ));
        }
        (environment, warnings)
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
