//! Reads a file of `scrape_configs`, and lists of targets.

mod serialize;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use egret_base::settings::{ByteSize, Value};
use serde::{Deserialize, Serialize, Serializer};
use serde_saphyr::Spanned;

use super::target::check_address;
use crate::core::relabel::{RelabelConfig, Relabeling};
use crate::core::yaml::{self, DurationMs, position};

/// How targets are scraped of which a file does not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeDefaults {
    /// Between two scrapes, in milliseconds.
    pub interval_ms: i64,
    /// What a scrape may take, in milliseconds; never more than the interval.
    pub timeout_ms: i64,
    /// What a target shows is at most so long, in bytes.
    pub body_bytes_max: u64,
}

impl Default for ScrapeDefaults {
    fn default() -> Self {
        Self { interval_ms: 60_000, timeout_ms: 10_000, body_bytes_max: 64 << 20 }
    }
}

/// Lists of targets are read again after so many milliseconds, unless a file says otherwise.
const REFRESH_INTERVAL_MS: i64 = 300_000;

/// A text that is not shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("<secret>")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scrape_configs: Option<Vec<Spanned<Text>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Text {
    job_name: String,
    scrape_interval: Option<DurationMs>,
    scrape_timeout: Option<DurationMs>,
    metrics_path: Option<String>,
    scheme: Option<String>,
    params: Option<BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    honor_labels: bool,
    honor_timestamps: Option<bool>,
    #[serde(default)]
    sample_limit: u64,
    #[serde(default)]
    label_limit: u64,
    #[serde(default)]
    label_name_length_limit: u64,
    #[serde(default)]
    label_value_length_limit: u64,
    #[serde(default)]
    target_limit: u64,
    body_size_limit: Option<String>,
    enable_compression: Option<bool>,
    follow_redirects: Option<bool>,
    basic_auth: Option<BasicText>,
    authorization: Option<AuthorizationText>,
    tls_config: Option<TlsText>,
    static_configs: Option<Vec<TargetGroup>>,
    file_sd_configs: Option<Vec<FilesText>>,
    relabel_configs: Option<Vec<RelabelConfig>>,
    metric_relabel_configs: Option<Vec<RelabelConfig>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct BasicText {
    username: String,
    password: Option<Secret>,
    password_file: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct AuthorizationText {
    #[serde(rename = "type")]
    kind: Option<String>,
    credentials: Option<Secret>,
    credentials_file: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TlsText {
    ca_file: Option<String>,
    #[serde(default)]
    insecure_skip_verify: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FilesText {
    files: Vec<String>,
    refresh_interval: Option<DurationMs>,
}

/// Targets that have labels in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TargetGroup {
    /// Host and port of each.
    #[serde(default)]
    pub targets: Vec<String>,
    /// What all of them have.
    pub labels: Option<BTreeMap<String, String>>,
}

/// Files with lists of targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiscovery {
    /// Paths, with `*` for any part of a name.
    pub patterns: Vec<String>,
    /// How often they are read again, in milliseconds.
    pub refresh_interval_ms: i64,
}

/// How Egret authenticates to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// No credentials are sent.
    None,
    /// By name and password.
    Basic {
        /// Name of the user.
        username: String,
        /// The password, or the file that holds it and is read for each scrape.
        password: SecretSource,
    },
    /// By a header `authorization`.
    Header {
        /// Authentication scheme, such as `Bearer`.
        kind: String,
        /// Credentials after the kind, such as a token.
        credentials: SecretSource,
    },
}

/// Source of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// Written in the configuration itself.
    Here(Secret),
    /// Path of the file that holds it.
    File(String),
}

/// What one scrape may bring; 0: any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeLimits {
    /// Most samples of a scrape, after relabelling.
    pub samples: u64,
    /// Largest number of labels of a series, its name included.
    pub labels: u64,
    /// Bytes of a label's name.
    pub label_name_bytes: u64,
    /// Bytes of a label's value.
    pub label_value_bytes: u64,
    /// Bytes of the body, as sent and unpacked; never 0.
    pub body_bytes: u64,
    /// Targets of the job.
    pub targets: u64,
}

/// A job: targets that are scraped alike.
#[derive(Clone, Debug)]
pub struct ScrapeConfig {
    text: Text,
    /// Its name, and the label `job` of its targets.
    pub job_name: String,
    /// Between two scrapes, in milliseconds.
    pub interval_ms: i64,
    /// Timeout of a scrape, in milliseconds.
    pub timeout_ms: i64,
    /// Path of the metrics page, such as `/metrics`.
    pub metrics_path: String,
    /// Scheme of the address: `http` or `https`.
    pub scheme: String,
    /// Parameters of the address.
    pub params: BTreeMap<String, Vec<String>>,
    /// Whether a target's own labels win over those that Egret gives it.
    pub honor_labels: bool,
    /// Whether a target's own times count.
    pub honor_timestamps: bool,
    /// Limits of a scrape.
    pub limits: ScrapeLimits,
    /// Whether the body may be packed.
    pub accepts_gzip: bool,
    /// Whether a redirect is followed.
    pub follows_redirects: bool,
    /// How Egret authenticates to the targets.
    pub credentials: Credentials,
    /// The file with the certificates to trust, besides those of the system.
    pub ca_file: Option<String>,
    /// Whether any certificate will do.
    pub accepts_any_certificate: bool,
    /// Targets that the file itself lists.
    pub static_groups: Vec<TargetGroup>,
    /// Files that list targets.
    pub files: Vec<FileDiscovery>,
    /// What is done with the labels of targets.
    pub relabeling: Relabeling,
    /// What is done with the labels of samples.
    pub metric_relabeling: Relabeling,
}

impl PartialEq for ScrapeConfig {
    /// Whether they were written alike.
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {line}:{column}: {problem}")]
pub struct ScrapeFileError {
    /// Path of the file.
    pub file: String,
    /// Line of the error, from 1.
    pub line: u64,
    /// Column of the error, from 1.
    pub column: u64,
    /// Description of what is wrong.
    pub problem: String,
}

/// The jobs of a file.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(
    file: &str,
    text: &str,
    defaults: ScrapeDefaults,
) -> Result<Vec<ScrapeConfig>, ScrapeFileError> {
    let file_error =
        |(line, column), problem| ScrapeFileError { file: file.to_owned(), line, column, problem };
    let parsed: File =
        yaml::parse(text).map_err(|error| file_error((error.line, error.column), error.problem))?;
    let mut names = BTreeSet::new();
    let mut configs = Vec::new();
    for text in parsed.scrape_configs.unwrap_or_default() {
        let position = position(&text);
        let config = ScrapeConfig::new(text.value, defaults)
            .map_err(|problem| file_error(position, problem))?;
        if !names.insert(config.job_name.clone()) {
            let problem = format!("job_name {:?} is used by another job too", config.job_name);
            return Err(file_error(position, problem));
        }
        configs.push(config);
    }
    Ok(configs)
}

/// A list of targets, as JSON or YAML.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse_groups(file: &str, text: &str) -> Result<Vec<TargetGroup>, ScrapeFileError> {
    yaml::parse(text).map_err(|error| ScrapeFileError {
        file: file.to_owned(),
        line: error.line,
        column: error.column,
        problem: error.problem,
    })
}

fn secret_source(
    property: &str,
    here: &Option<Secret>,
    file: &Option<String>,
) -> Result<SecretSource, String> {
    match (here, file) {
        (Some(secret), None) => Ok(SecretSource::Here(secret.clone())),
        (None, Some(file)) => Ok(SecretSource::File(file.clone())),
        (None, None) => Ok(SecretSource::Here(Secret::default())),
        (Some(_), Some(_)) => {
            Err(format!("at most one of {property} & {property}_file must be configured"))
        }
    }
}

fn parse_credentials(text: &Text) -> Result<Credentials, String> {
    match (&text.basic_auth, &text.authorization) {
        (None, None) => Ok(Credentials::None),
        (Some(_), Some(_)) => {
            Err("at most one of basic_auth & authorization must be configured".to_owned())
        }
        (Some(basic), None) => Ok(Credentials::Basic {
            username: basic.username.clone(),
            password: secret_source("password", &basic.password, &basic.password_file)?,
        }),
        (None, Some(header)) => {
            let kind = header.kind.as_deref().unwrap_or("Bearer").trim();
            if kind.eq_ignore_ascii_case("basic") {
                return Err("authorization type cannot be set to \"basic\": use basic_auth".into());
            }
            Ok(Credentials::Header {
                kind: kind.to_owned(),
                credentials: secret_source(
                    "credentials",
                    &header.credentials,
                    &header.credentials_file,
                )?,
            })
        }
    }
}

fn parse_body_bytes(text: &Text, defaults: ScrapeDefaults) -> Result<u64, String> {
    match text.body_size_limit.as_deref() {
        None | Some("0") => Ok(defaults.body_bytes_max),
        Some(size) => {
            let size = <ByteSize as Value>::read(size);
            let size = size.map_err(|problem| format!("body_size_limit: {problem}"))?;
            Ok(size.bytes())
        }
    }
}

impl ScrapeConfig {
    fn new(text: Text, defaults: ScrapeDefaults) -> Result<Self, String> {
        let job = &text.job_name;
        let with_job = |problem: String| format!("job {job:?}: {problem}");
        if job.is_empty() {
            return Err("job_name is empty".to_owned());
        }
        let positive_ms = |it: Option<DurationMs>| it.map(|it| it.0).filter(|ms| *ms > 0);
        let interval_ms = positive_ms(text.scrape_interval).unwrap_or(defaults.interval_ms);
        let timeout_ms = positive_ms(text.scrape_timeout);
        let timeout_ms = timeout_ms.unwrap_or(defaults.timeout_ms.min(interval_ms));
        if timeout_ms > interval_ms {
            return Err(with_job("scrape timeout greater than scrape interval".into()));
        }
        let scheme = text.scheme.as_deref().unwrap_or("http");
        if !matches!(scheme, "http" | "https") {
            return Err(with_job(format!("scheme {scheme:?} is neither http nor https")));
        }
        let compile_relabeling = |steps: &Option<Vec<RelabelConfig>>| {
            Relabeling::new(steps.as_deref().unwrap_or_default()).map_err(with_job)
        };
        let files = text.file_sd_configs.iter().flatten().map(|files| FileDiscovery {
            patterns: files.files.clone(),
            refresh_interval_ms: positive_ms(files.refresh_interval).unwrap_or(REFRESH_INTERVAL_MS),
        });
        let tls = text.tls_config.as_ref();
        let config = Self {
            job_name: job.clone(),
            interval_ms,
            timeout_ms,
            metrics_path: text.metrics_path.clone().unwrap_or_else(|| "/metrics".into()),
            scheme: scheme.to_owned(),
            params: text.params.clone().unwrap_or_default(),
            honor_labels: text.honor_labels,
            honor_timestamps: text.honor_timestamps.unwrap_or(true),
            limits: ScrapeLimits {
                samples: text.sample_limit,
                labels: text.label_limit,
                label_name_bytes: text.label_name_length_limit,
                label_value_bytes: text.label_value_length_limit,
                body_bytes: parse_body_bytes(&text, defaults).map_err(with_job)?,
                targets: text.target_limit,
            },
            accepts_gzip: text.enable_compression.unwrap_or(true),
            follows_redirects: text.follow_redirects.unwrap_or(true),
            credentials: parse_credentials(&text).map_err(with_job)?,
            ca_file: tls.and_then(|tls| tls.ca_file.clone()),
            accepts_any_certificate: tls.is_some_and(|tls| tls.insecure_skip_verify),
            static_groups: text.static_configs.clone().unwrap_or_default(),
            files: files.collect(),
            relabeling: compile_relabeling(&text.relabel_configs)?,
            metric_relabeling: compile_relabeling(&text.metric_relabel_configs)?,
            text,
        };
        config.check_targets(&config.static_groups)?;
        Ok(config)
    }

    /// Refuses targets that are no addresses. Where there is relabelling, it may make addresses of
    /// anything.
    ///
    /// # Errors
    /// The first of them.
    pub(crate) fn check_targets(&self, groups: &[TargetGroup]) -> Result<(), String> {
        if !self.relabeling.is_empty() {
            return Ok(());
        }
        let mut targets = groups.iter().flat_map(|group| &group.targets);
        let target_error = |problem| format!("job {:?}: target {problem}", self.job_name);
        targets.try_for_each(|target| check_address(target).map_err(target_error))
    }

    /// A job of this program's own: one target that is asked without HTTP.
    pub(crate) fn in_process(job_name: &str, interval_ms: i64, timeout_ms: i64) -> Self {
        let text = Text {
            job_name: job_name.to_owned(),
            scrape_interval: Some(DurationMs(interval_ms)),
            scrape_timeout: Some(DurationMs(timeout_ms.min(interval_ms))),
            ..Text::default()
        };
        let config = Self::new(text, ScrapeDefaults::default());
        config.expect("a job with nothing but a name and times is well formed")
    }
}

#[cfg(test)]
mod tests;
