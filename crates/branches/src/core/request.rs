//! Whether a request for a branch can be granted, before anything is touched.

use std::collections::BTreeMap;

use egret_base::Limit;
use egret_base::settings::ByteSize;

use crate::config::BranchesConfig;
use crate::core::preset::CHOOSABLE;
use crate::core::quota;
use crate::error::BranchesError;
use crate::model::{Branch, NewBranch, Preset};

/// The longest text of a label's key or value and of a setting's value, in bytes.
pub const TEXT_BYTES_MAX: u64 = 256;

/// Checks everything that can be checked without I/O.
///
/// # Errors
/// [`BranchesError::Invalid`].
pub fn validate(
    request: &NewBranch,
    config: &BranchesConfig,
    machine_memory: ByteSize,
) -> Result<(), BranchesError> {
    if request.preset == Preset::Twin && !request.settings.is_empty() {
        return Err(BranchesError::Invalid {
            what: "settings",
            reason: "preset twin uses the source's settings: do not give any".to_owned(),
        });
    }
    for (name, value) in &request.settings {
        if !CHOOSABLE.contains(&name.as_str()) {
            let near = egret_base::settings::nearest(name, CHOOSABLE.iter().copied());
            let hint =
                near.map_or_else(|| CHOOSABLE.join(", "), |near| format!("did you mean {near}?"));
            return Err(BranchesError::Invalid {
                what: "settings",
                reason: format!("`{name}` cannot be set on a branch; {hint}"),
            });
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ');
        if value.is_empty() || value.len() as u64 > TEXT_BYTES_MAX || !value.chars().all(is_plain) {
            return Err(BranchesError::Invalid {
                what: "settings",
                reason: format!(
                    "the value of {name} must be a plain number, size, duration or word"
                ),
            });
        }
    }
    quota::check_settings(&request.settings, config, machine_memory)?;
    check_labels(&request.labels, config)?;
    check_ttl(request.ttl_ms, config)
}

/// A value over its limit can never be granted, however often it is asked for.
fn check_limit(limit: Limit, requested: u64, what: &'static str) -> Result<(), BranchesError> {
    limit
        .check(requested)
        .map_err(|exceeded| BranchesError::Invalid { what, reason: exceeded.to_string() })
}

/// Checks labels.
///
/// # Errors
/// [`BranchesError::Invalid`].
pub fn check_labels(
    labels: &BTreeMap<String, String>,
    config: &BranchesConfig,
) -> Result<(), BranchesError> {
    let limit = Limit::new("branches.labels_max", u64::from(config.labels_max));
    check_limit(limit, labels.len() as u64, "labels")?;
    for (key, value) in labels {
        if key.is_empty() {
            return Err(BranchesError::Invalid {
                what: "labels",
                reason: "a label needs a key".to_owned(),
            });
        }
        let limit = Limit::new("label_bytes_max", TEXT_BYTES_MAX);
        check_limit(limit, key.len() as u64, "labels")?;
        check_limit(limit, value.len() as u64, "labels")?;
    }
    Ok(())
}

/// Checks a lifetime.
///
/// # Errors
/// [`BranchesError::Invalid`] for zero and beyond the longest.
pub(crate) fn check_ttl(ttl_ms: Option<u64>, config: &BranchesConfig) -> Result<(), BranchesError> {
    match ttl_ms {
        Some(0) => Err(BranchesError::Invalid {
            what: "ttl_ms",
            reason: "a lifetime must be longer than zero".to_owned(),
        }),
        Some(ttl_ms) => {
            check_limit(Limit::new("branches.ttl_max", config.ttl_max.0), ttl_ms, "ttl_ms")
        }
        None => Ok(()),
    }
}

/// A second request for the same name is the first one repeated, or a contradiction.
///
/// # Errors
/// [`BranchesError::NameTaken`] with what differs.
pub(crate) fn check_same_request(
    existing: &Branch,
    request: &NewBranch,
) -> Result<(), BranchesError> {
    let differs = if existing.from != request.from {
        "another origin"
    } else if existing.preset != request.preset {
        "another preset"
    } else if existing.durable != is_durable(request) {
        "another durability"
    } else if request.superuser != existing.superuser
        && (request.superuser || request.from == crate::model::BranchSource::NewestTemplate)
    {
        // A copy of a superuser's branch is one without being asked for as such.
        "other rights"
    } else if existing.role_passwords != request.role_passwords {
        "other passwords"
    } else if existing.settings != request.settings {
        "other settings"
    } else if request.ttl_ms.is_some() && existing.ttl_ms != request.ttl_ms {
        "another lifetime"
    } else if !request.labels.is_empty() && existing.labels != request.labels {
        "other labels"
    } else if request.protected && !existing.protected {
        "another protection"
    } else {
        return Ok(());
    };
    Err(BranchesError::NameTaken { name: request.name.to_string(), differs })
}

/// A twin is durable as its source is.
pub fn is_durable(request: &NewBranch) -> bool {
    request.durable || request.preset == Preset::Twin
}
