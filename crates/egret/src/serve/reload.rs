//! SIGHUP: what can change while Egret runs is read again.
//!
//! That is the certificate of the doors, the authorities of their clients, the keys of
//! `oidc.issuer`, the files of rules and scrape jobs, and the settings in [`RELOADABLE_SETTINGS`]
//! and [`ServerLimits::SETTINGS`]. A file that cannot be used leaves everything of its kind as it
//! was. Other settings that changed are named in the log, as they need a restart.

use std::sync::Arc;

use egret_outgoing::{Destinations, OutgoingConfig};
use egret_series::Monitor;
use egret_server::{Certificates, Oidc, ServerConfig, ServerLimits};
use tokio::signal::unix::Signal;

use super::logging::LogLevel;
use crate::configuration::{Configuration, Effective};

/// Settings that hold as soon as they are read again.
const RELOADABLE_SETTINGS: [&str; 6] = [
    "egret.log_level",
    "outgoing.allow",
    "server.tls_certificate",
    "server.tls_client_auth",
    "server.tls_client_ca",
    "server.tls_key",
];

/// The parts that take over what was read again.
#[derive(Clone)]
pub(super) struct Reloadable {
    pub(super) certificates: Option<Certificates>,
    pub(super) monitor: Monitor,
    pub(super) limits: ServerLimits,
    pub(super) oidc: Option<Arc<Oidc>>,
    pub(super) destinations: Destinations,
}

/// Passes changes on. Its configuration is the one that is in force.
pub(super) struct Reloader {
    pub(super) configuration: Configuration,
    pub(super) log_level: LogLevel,
    pub(super) parts: Reloadable,
}

impl Reloader {
    /// Reloads at every SIGHUP, for as long as it is polled.
    pub(super) async fn run(mut self, hangup: &mut Signal) {
        while hangup.recv().await.is_some() {
            self.reload().await;
        }
    }

    async fn reload(&mut self) {
        match self.configuration.reread() {
            Ok(new_configuration) => self.reload_settings(new_configuration),
            Err(error) => {
                tracing::error!(%error, "cannot reload the settings; keeping the previous ones")
            }
        }
        self.reload_certificates();
        if let Some(oidc) = &self.parts.oidc {
            oidc.refresh();
        }
        match self.parts.monitor.reload().await {
            Ok(_) => tracing::info!("reloaded rules and scrape jobs"),
            Err(error) => {
                tracing::error!(%error, "cannot reload rules and scrape jobs; keeping the previous ones")
            }
        }
    }

    fn reload_settings(&mut self, new_configuration: Configuration) {
        let (before, after) = match (self.configuration.effective(), new_configuration.effective())
        {
            (Ok(before), Ok(after)) => (before, after),
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%error, "cannot reload the settings; keeping the previous ones");
                return;
            }
        };
        for key in changed_keys(&before, &after) {
            if !RELOADABLE_SETTINGS.contains(&key) && !ServerLimits::SETTINGS.contains(&key) {
                tracing::warn!(
                    setting = key,
                    "the setting was changed, but needs a restart to take effect"
                );
            }
        }
        match self.apply_settings(&new_configuration) {
            Ok(()) => self.configuration = new_configuration,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "cannot reload the settings; keeping the previous ones"
                );
            }
        }
    }

    /// Hands the settings to the parts, after a check of all of them: either all are taken over or
    /// none.
    fn apply_settings(&self, new_configuration: &Configuration) -> anyhow::Result<()> {
        let server: ServerConfig = new_configuration.section()?;
        let outgoing: OutgoingConfig = new_configuration.section()?;
        server.check()?;
        Destinations::new(&outgoing.allow).map_err(anyhow::Error::msg)?;
        self.log_level.apply(&new_configuration.section()?)?;
        self.parts.limits.change(&server)?;
        let changed = self.parts.destinations.set_allowed(&outgoing.allow);
        if changed.map_err(anyhow::Error::msg)? {
            tracing::info!("the list of allowed destinations has changed");
        }
        Ok(())
    }

    fn reload_certificates(&self) {
        let config: ServerConfig = match self.configuration.section() {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(%error, "cannot reload the certificate; keeping the previous one");
                return;
            }
        };
        let Some(certificates) = &self.parts.certificates else {
            if config.tls_certificate.is_some() {
                tracing::warn!("enabling TLS needs a restart: the server was started without it");
            }
            return;
        };
        match certificates.reload(&config) {
            Ok(changes) => {
                if changes.has_new_certificate {
                    tracing::info!("the certificate was replaced");
                } else {
                    tracing::info!("the certificate is unchanged");
                }
                if changes.has_new_client_trust {
                    tracing::info!("the accepted client certificates have changed");
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot reload the certificate; keeping the previous one")
            }
        }
    }
}

/// The keys whose values differ.
fn changed_keys<'a>(before: &'a [Effective], after: &[Effective]) -> Vec<&'a str> {
    before
        .iter()
        .zip(after)
        .filter(|(before, after)| before.value != after.value)
        .map(|(before, _)| before.key.as_str())
        .collect()
}
