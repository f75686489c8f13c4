//! The effective configuration: `egret.toml` < `EGRET_…` < flags, every value with its origin.

mod file;
mod injected;
mod page;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use egret_base::settings::{
    Layers, Origin, Section, SettingDeclaration, SettingError, environment_name, nearest,
};

use egret_branches::BranchesConfig;
use egret_documents::DocumentsConfig;
use egret_outgoing::OutgoingConfig;
use egret_postgres::PostgresConfig;
use egret_queue::QueueConfig;
use egret_series::SeriesConfig;
use egret_server::proxy::ProxyConfig;
use egret_server::{OidcConfig, ServerConfig};
use egret_views::ViewsConfig;

use crate::api::Address;
use crate::serve::clock::ClockConfig;

pub use self::page::reference;

egret_base::settings! {
    /// Settings of the program itself.
    pub struct ProgramConfig in "egret" {
        /// Directory for all data of Egret: state, the embedded server, branches, queue, series.
        /// Empty: `/var/lib/egret` for root, else `$XDG_DATA_HOME/egret` or `~/.local/share/egret`.
        data_dir: Option<PathBuf> = None,
        /// Log level: `error`, `warn`, `info`, `debug`, `trace` (in release builds the same as
        /// `debug`), or directives per module such as `info,egret_branches=debug`.
        log_level: String = "info".to_owned(),
        /// Format of log lines: `text` or `json`.
        log_format: String = "text".to_owned(),
    }
}

/// Read by the client only; they are no settings.
const CLIENT_VARIABLES: [&str; 4] =
    ["EGRET_TOKEN", "EGRET_URL", "EGRET_CLIENT_CERT", "EGRET_CLIENT_KEY"];
/// What `egret queue work` tells the commands that it runs, which may run this program again.
const WORK_VARIABLES: [&str; 8] = [
    "EGRET_TASK_ID",
    "EGRET_QUEUE",
    "EGRET_ATTEMPT",
    "EGRET_MAX_ATTEMPTS",
    "EGRET_PRIORITY",
    "EGRET_ORDERING_KEY",
    "EGRET_TAGS",
    "EGRET_METADATA",
];
const VARIABLE_PREFIX: &str = "EGRET_";
const TEST_VARIABLE_PREFIX: &str = "EGRET_TEST_";
const DEFAULT_FILE: &str = "egret.toml";

/// Keys with their effective values as text.
type Values = Vec<(String, String)>;

/// One section: what it declares and how its values are checked and shown.
struct Part {
    declared: fn() -> Vec<SettingDeclaration>,
    effective: fn(&Layers) -> Result<Values, SettingError>,
}

impl Part {
    fn for_section<S: Section>() -> Self {
        Self {
            declared: S::declared,
            effective: |layers| {
                let section: S = layers.section()?;
                Ok(S::declared()
                    .into_iter()
                    .map(|setting| {
                        let field = setting.key.split_once('.').map_or("", |(_, field)| field);
                        let value = section.get(field).unwrap_or_default();
                        (setting.key, value)
                    })
                    .collect())
            },
        }
    }
}

/// Every section there is, in the order in which `egret config` shows them.
fn section_parts() -> Vec<Part> {
    vec![
        Part::for_section::<ProgramConfig>(),
        Part::for_section::<ClockConfig>(),
        Part::for_section::<PostgresConfig>(),
        Part::for_section::<BranchesConfig>(),
        Part::for_section::<QueueConfig>(),
        Part::for_section::<SeriesConfig>(),
        Part::for_section::<ViewsConfig>(),
        Part::for_section::<DocumentsConfig>(),
        Part::for_section::<OutgoingConfig>(),
        Part::for_section::<ServerConfig>(),
        Part::for_section::<OidcConfig>(),
        Part::for_section::<ProxyConfig>(),
    ]
}

/// Every setting there is.
pub(crate) fn declared_settings() -> Vec<SettingDeclaration> {
    section_parts().iter().flat_map(|part| (part.declared)()).collect()
}

/// One setting with its effective value, as `egret config` shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Effective {
    /// Section and name, with a dot between.
    pub key: String,
    /// The value as text; secrets are masked.
    pub value: String,
    /// Where it came from.
    pub origin: String,
}

/// The settings merged from file, environment and flags.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    layers: Layers,
    /// Variables that were passed over: they describe a Service of Kubernetes.
    injected: Vec<String>,
    sources: Sources,
}

/// What a configuration was read from, to read it again.
#[derive(Clone, Debug, Default)]
struct Sources {
    file: Option<PathBuf>,
    environment: Vec<(String, String)>,
    flags: Vec<(String, String)>,
    /// Keys, values and reasons of [`Configuration::with_default`].
    default_overrides: Vec<(String, String, String)>,
}

impl Configuration {
    /// Reads file, environment and flags. `file` is the one asked for; without it `egret.toml` in
    /// the current directory is read where there is one.
    ///
    /// # Errors
    /// [`SettingError`] with file and line, variable or flag, for a key that is not declared or a
    /// value that cannot be read.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[(String, String)],
    ) -> Result<Self, SettingError> {
        let environment: Vec<(String, String)> =
            environment.into_iter().filter(|(name, _)| name.starts_with(VARIABLE_PREFIX)).collect();
        let sources = Sources {
            file: file.map(Path::to_owned),
            environment: environment.clone(),
            flags: flags.to_vec(),
            default_overrides: Vec::new(),
        };
        let mut layers = Layers::default();
        match file {
            Some(path) => file::read_named(path, &mut layers)?,
            None if std::fs::symlink_metadata(DEFAULT_FILE).is_ok() => {
                file::read_default(Path::new(DEFAULT_FILE), &mut layers)?
            }
            None => {}
        }
        let declared = declared_settings();
        // Each layer is checked by itself: a later one would hide what is wrong below it.
        check(&layers, &declared)?;
        let injected = apply_environment(&mut layers, environment, &declared)?;
        check(&layers, &declared)?;
        for (key, text) in flags {
            let origin = Origin::Flag(format!("--set {key}={}", mask_secrets(key, text)));
            layers.put(key, text, origin);
        }
        check(&layers, &declared)?;
        Ok(Self { layers, injected, sources })
    }

    /// Reads everything again: the file may have changed since.
    ///
    /// # Errors
    /// As [`Configuration::load`].
    pub(crate) fn reread(&self) -> Result<Self, SettingError> {
        let Sources { file, environment, flags, default_overrides: assumed } = &self.sources;
        let reloaded = Self::load(file.as_deref(), environment.clone(), flags)?;
        Ok(assumed
            .iter()
            .fold(reloaded, |read, (key, value, reason)| read.with_default(key, value, reason)))
    }

    /// What the user should know of the environment, if anything.
    pub fn warning(&self) -> Option<String> {
        if self.injected.is_empty() {
            return None;
        }
        Some(format!(
            "ignored {}: an orchestrator's description of a service, not settings (in Kubernetes \
             `enableServiceLinks: false` avoids them)",
            self.injected.join(", ")
        ))
    }

    /// The same with another default for one setting, for the reason given; a setting that is set
    /// keeps its value.
    pub(crate) fn with_default(&self, key: &str, value: &str, reason: &str) -> Self {
        let mut layers = self.layers.clone();
        if layers.origin(key) == Origin::Default {
            layers.put(key, value, Origin::Flag(reason.to_owned()));
        }
        let mut sources = self.sources.clone();
        let assumed = (key.to_owned(), value.to_owned(), reason.to_owned());
        sources.default_overrides.push(assumed);
        Self { layers, injected: self.injected.clone(), sources }
    }

    /// One section's settings.
    ///
    /// # Errors
    /// Never for a section of [`declared`]: [`Self::load`] has read every value.
    pub fn section<S: Section>(&self) -> Result<S, SettingError> {
        self.layers.section()
    }

    /// Where everything is kept.
    ///
    /// # Errors
    /// [`SettingError`] when it is not configured and the user has no home directory.
    pub fn data_dir(&self) -> Result<PathBuf, SettingError> {
        let program: ProgramConfig = self.section()?;
        program.data_dir.or_else(default_data_dir).ok_or_else(|| SettingError {
            origin: Origin::Default,
            message: "egret.data_dir: there is no home directory to put it in: set EGRET_DATA_DIR"
                .to_owned(),
        })
    }

    /// The server's address as configured, as a client on the same machine reaches it.
    ///
    /// # Errors
    /// [`SettingError`] when `server.address` is no IP address or the certificate cannot be read.
    pub fn address(&self) -> Result<Address, SettingError> {
        let server: ServerConfig = self.section()?;
        let refuse =
            |key: &str, message: String| SettingError { origin: self.layers.origin(key), message };
        let mut socket =
            server.socket_address().map_err(|error| refuse("server.address", error.to_string()))?;
        if socket.ip().is_unspecified() {
            socket.set_ip(match socket {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let (scheme, certificate) = match &server.tls_certificate {
            None => ("http", None),
            Some(path) => {
                let pem = egret_linux::regular_file::read(path).map_err(|error| {
                    refuse("server.tls_certificate", format!("{}: {error}", path.display()))
                })?;
                ("https", Some(pem))
            }
        };
        let url = format!("{scheme}://{socket}")
            .parse()
            .expect("scheme and socket address make an address");
        Ok(Address { url, certificate, authorities: None, identity: None })
    }

    /// Every setting with its value and origin; secrets are masked, and the data directory is shown
    /// as it is even where it is not set.
    ///
    /// # Errors
    /// As [`Self::section`].
    pub fn effective(&self) -> Result<Vec<Effective>, SettingError> {
        let mut settings = Vec::new();
        for part in section_parts() {
            for (key, mut value) in (part.effective)(&self.layers)? {
                if key == "egret.data_dir" {
                    value = self.data_dir()?.display().to_string();
                }
                settings.push(Effective {
                    origin: self.layers.origin(&key).to_string(),
                    value: mask_secrets(&key, &value),
                    key,
                });
            }
        }
        Ok(settings)
    }
}

fn check(layers: &Layers, declared: &[SettingDeclaration]) -> Result<(), SettingError> {
    layers.reject_unknown(declared)?;
    for part in section_parts() {
        (part.effective)(layers)?;
    }
    Ok(())
}

fn apply_environment(
    layers: &mut Layers,
    environment: impl IntoIterator<Item = (String, String)>,
    declared: &[SettingDeclaration],
) -> Result<Vec<String>, SettingError> {
    let mut injected = Vec::new();
    for (name, text) in environment {
        let is_ours = name.starts_with(VARIABLE_PREFIX)
            && !name.starts_with(TEST_VARIABLE_PREFIX)
            && !CLIENT_VARIABLES.contains(&name.as_str())
            && !WORK_VARIABLES.contains(&name.as_str());
        if !is_ours {
            continue;
        }
        if injected::is_injected(&name, &text) {
            injected.push(name);
            continue;
        }
        match declared.iter().find(|setting| variable_name(&setting.key) == name) {
            Some(setting) => layers.put(&setting.key, &text, Origin::Environment(name)),
            None => return Err(unknown_variable(name, declared)),
        }
    }
    injected.sort();
    Ok(injected)
}

fn unknown_variable(name: String, declared: &[SettingDeclaration]) -> SettingError {
    let names: Vec<String> = declared
        .iter()
        .map(|setting| variable_name(&setting.key))
        .chain(CLIENT_VARIABLES.map(str::to_owned))
        .collect();
    // Compared without the prefix, which would make everything look alike.
    let bare = |name| str::trim_start_matches(name, VARIABLE_PREFIX);
    let message = match nearest(bare(&name), names.iter().map(|name| bare(name))) {
        Some(near) => format!("unknown variable: did you mean `{VARIABLE_PREFIX}{near}`?"),
        None => "unknown variable: `egret config --reference` lists them all".to_owned(),
    };
    SettingError { origin: Origin::Environment(name), message }
}

/// The variable that sets `key`. The program's own section adds nothing to the name:
/// `egret.data_dir` is `EGRET_DATA_DIR`.
pub(crate) fn variable_name(key: &str) -> String {
    match key.split_once('.') {
        Some((ProgramConfig::NAME, field)) => environment_name(field),
        _ => environment_name(key),
    }
}

/// Shown instead of a secret.
pub(crate) const MASK: &str = "••••••";

/// A value fit to be shown: passwords, secrets and tokens are not, nor a password within a URL or
/// a connection string.
pub(crate) fn mask_secrets(key: &str, value: &str) -> String {
    let field = key.rsplit('.').next().unwrap_or(key);
    let names_a_secret = ["password", "secret", "token"]
        .iter()
        .any(|word| field == *word || field.ends_with(&format!("_{word}")));
    if names_a_secret && !value.is_empty() {
        return MASK.to_owned();
    }
    if field.ends_with("_webhooks") {
        let urls = value.split(';').map(|url| mask_url_path(&mask_secrets("", url.trim())));
        return urls.collect::<Vec<String>>().join("; ");
    }
    let mut shown = value.to_owned();
    if let Some((scheme, rest)) = value.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        let kind = scheme.to_ascii_lowercase();
        if let Some((user, host)) = rest.rsplit_once('@')
            && let Some((user, _)) = user.split_once(':')
        {
            shown = format!("{scheme}://{user}:{MASK}@{host}");
        } else if (kind.ends_with("http") || kind.ends_with("https"))
            && let Some((_, host)) = authority.rsplit_once('@')
        {
            // A token may stand where the user does.
            let path = &rest[authority.len()..];
            shown = format!("{scheme}://{MASK}@{host}{path}");
        }
    }
    // What follows `password` and an equals sign is hidden too: a quoted password may hold spaces.
    // libpq allows spaces around the sign.
    let word = "password";
    let word_ends = shown.match_indices(word).map(|(at, _)| at + word.len());
    let mask_start = word_ends.filter(|end| shown[*end..].trim_start().starts_with('=')).min();
    if let Some(before) = mask_start {
        shown = format!("{}={MASK}", &shown[..before]);
    }
    shown
}

/// A URL of HTTP with what follows its host masked, for that may be the secret of a webhook; any
/// other text as it is.
pub(crate) fn mask_url_path(text: &str) -> String {
    let (option, url) = match text.split_once('=') {
        Some((option, url)) if option.starts_with("--") => (&text[..=option.len()], url),
        _ => ("", text),
    };
    let after_scheme = ["http://", "https://"].into_iter().find_map(|scheme| {
        let prefix = url.get(..scheme.len())?;
        let is_same = prefix.eq_ignore_ascii_case(scheme);
        is_same.then(|| url.split_at(scheme.len()))
    });
    let Some((scheme, rest)) = after_scheme else {
        return text.to_owned();
    };
    match rest.find(['/', '?', '#']) {
        Some(end) if end + 1 < rest.len() => {
            format!("{option}{scheme}{}{MASK}", &rest[..=end])
        }
        _ => text.to_owned(),
    }
}

fn default_data_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/egret"));
    }
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|share| share.join("egret"))
}

#[cfg(test)]
mod tests;
