//! Version and settings of the PostgreSQL that is measured.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use tokio_postgres::Client;

use crate::process::Snapshot;
use crate::stage::Subject;

/// What a PostgreSQL says about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PostgresFacts {
    /// Value of the setting `server_version`.
    pub version: String,
    /// Every setting that differs from its default, without those that say where it is.
    pub settings: BTreeMap<String, String>,
}

/// Stands before the names of a branch's settings, beside those of its source.
const BRANCH_PREFIX: &str = "branch.";

/// Settings that hold for this session alone are left out, as are those that say where the server
/// is: they are another for every private server and change no speed. Some may hold a secret. Two
/// columns of text: name and value.
pub(crate) const SETTINGS_QUERY: &str = "
    SELECT name,
           CASE WHEN name IN ('primary_conninfo', 'archive_command', 'archive_cleanup_command',
                              'restore_command', 'recovery_end_command', 'ssl_passphrase_command')
                THEN '(set)'
                ELSE setting || coalesce(' ' || unit, '') END
    FROM pg_catalog.pg_settings
    WHERE setting IS DISTINCT FROM boot_val
      AND source NOT IN ('default', 'client', 'session')
      AND context <> 'internal'
      AND name NOT IN ('config_file', 'data_directory', 'hba_file', 'ident_file', 'external_pid_file',
                       'port', 'listen_addresses', 'unix_socket_directories', 'unix_socket_group',
                       'unix_socket_permissions', 'cluster_name', 'application_name',
                       'log_directory', 'log_filename', 'log_file_mode', 'log_destination',
                       'ssl_cert_file', 'ssl_key_file', 'ssl_ca_file', 'krb_server_keyfile')
    ORDER BY name";

impl PostgresFacts {
    /// Reads version and settings from a server.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn query(client: &Client) -> Result<Self> {
        let rows = client
            .query(SETTINGS_QUERY, &[])
            .await
            .context("read the settings of the PostgreSQL")?;
        let settings = rows.iter().map(|row| (row.get(0), row.get(1)));
        let version = client
            .query_one("SELECT pg_catalog.current_setting('server_version')", &[])
            .await
            .context("read the version of the PostgreSQL")?;
        Ok(Self { version: version.get(0), settings: settings.collect() })
    }

    /// Adds the settings of a branch, as rows of name and value that [`SETTINGS_QUERY`] gave there.
    /// They are kept as `branch.NAME`, beside those of the source, which are others: a branch has a
    /// preset.
    pub(crate) fn add_branch(&mut self, rows: impl IntoIterator<Item = (String, String)>) {
        let prefixed_rows =
            rows.into_iter().map(|(name, value)| (format!("{BRANCH_PREFIX}{name}"), value));
        self.settings.extend(prefixed_rows);
    }
}

impl Subject {
    /// Fills in version and settings of the server and, with `is_local`, its postmaster and its
    /// data directory on this machine.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(crate) async fn add_postgres_facts(
        &mut self,
        client: &Client,
        is_local: bool,
    ) -> Result<()> {
        self.postgres = Some(PostgresFacts::query(client).await?);
        if !is_local {
            return Ok(());
        }
        let backend: i32 = client
            .query_one("SELECT pg_catalog.pg_backend_pid()", &[])
            .await
            .context("read the backend's pid")?
            .get(0);
        let backend = u32::try_from(backend).unwrap_or_default();
        let snapshot = Snapshot::take()?;
        // A port of this machine may lead into a container, where pids are others.
        if snapshot.name(backend).is_some_and(|name| name.starts_with("postgres"))
            && let Some(postmaster) = snapshot.parent(backend)
            && snapshot.name(postmaster).is_some_and(|name| name.starts_with("postgres"))
            && !snapshot.tree(&self.processes).contains(&postmaster)
        {
            self.processes.push(postmaster);
        }
        // Not every role may read this setting.
        let shown = client
            .query_opt(
                "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'data_directory'",
                &[],
            )
            .await
            .context("read the data directory")?;
        if let Some(row) = shown {
            let path = std::path::PathBuf::from(row.get::<_, String>(0));
            if path.exists() {
                self.data_dir = Some(path);
            }
        }
        Ok(())
    }
}
