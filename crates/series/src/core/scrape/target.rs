//! From lists of targets to targets: labels, relabelling, address.

use std::collections::BTreeMap;

use egret_metrics_model::number::{DURATION_MS_MAX, parse_duration_ms};
use egret_metrics_model::{Labels, LabelsBuilder};

use super::config::{ScrapeConfig, TargetGroup};

/// The labels that say how a target is scraped. They can be relabelled, and are no labels of its
/// samples.
const ADDRESS_LABEL: &str = "__address__";
const SCHEME_LABEL: &str = "__scheme__";
const PATH_LABEL: &str = "__metrics_path__";
const INTERVAL_LABEL: &str = "__scrape_interval__";
const TIMEOUT_LABEL: &str = "__scrape_timeout__";
const PARAM_PREFIX: &str = "__param_";
const META_PREFIX: &str = "__meta_";

/// Dropped targets that are shown; of the others there is the number.
const DROPPED_SHOWN_MAX: usize = 1_000;

/// Something to be scraped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScrapeTarget {
    /// The labels of its samples, `job` and `instance` among them.
    pub labels: Labels,
    /// URL of its metrics page.
    pub url: String,
    /// Labels of the target before relabelling.
    pub discovered_labels: Labels,
    /// Between two scrapes, in milliseconds.
    pub interval_ms: i64,
    /// Timeout of a scrape, in milliseconds.
    pub timeout_ms: i64,
}

/// What became of lists of targets.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// To be scraped, each once.
    pub active: Vec<ScrapeTarget>,
    /// Labels of some of those that relabelling dropped.
    pub dropped: Vec<Labels>,
    /// Number of targets that relabelling dropped.
    pub dropped_count: u64,
    /// Those that are none, and why.
    pub problems: Vec<String>,
}

/// The targets of a job: of the lists, each with the file that it is from, if it is from one.
pub(crate) fn find_targets<'a>(
    config: &ScrapeConfig,
    groups: impl IntoIterator<Item = (Option<&'a str>, &'a TargetGroup)>,
) -> Targets {
    let mut targets = Targets::default();
    for (file, group) in groups {
        for address in &group.targets {
            let discovered = discovered_labels(config, file, group, address);
            match relabel_target(config, &discovered) {
                Ok(Some(target)) => targets.active.push(target),
                Ok(None) => {
                    targets.dropped_count += 1;
                    if targets.dropped.len() < DROPPED_SHOWN_MAX {
                        targets.dropped.push(discovered);
                    }
                }
                Err(problem) => {
                    let job = &config.job_name;
                    let problem = format!("job {job:?}, target {address:?}: {problem}");
                    targets.problems.push(problem);
                }
            }
        }
    }
    targets.active.sort();
    targets.active.dedup_by(|a, b| a.labels == b.labels && a.url == b.url);
    let (count, targets_max) = (targets.active.len() as u64, config.limits.targets);
    if targets_max > 0 && count > targets_max {
        targets.active.clear();
        let job = &config.job_name;
        let problem =
            format!("job {job:?}: target_limit exceeded ({count} targets, limit {targets_max})");
        targets.problems.push(problem);
    }
    targets
}

fn discovered_labels(
    config: &ScrapeConfig,
    file: Option<&str>,
    group: &TargetGroup,
    address: &str,
) -> Labels {
    let mut labels = LabelsBuilder::default();
    labels.set("job", &config.job_name);
    labels.set(INTERVAL_LABEL, &format!("{}ms", config.interval_ms));
    labels.set(TIMEOUT_LABEL, &format!("{}ms", config.timeout_ms));
    labels.set(PATH_LABEL, &config.metrics_path);
    labels.set(SCHEME_LABEL, &config.scheme);
    for (name, values) in &config.params {
        if let Some(first) = values.first() {
            labels.set(&format!("{PARAM_PREFIX}{name}"), first);
        }
    }
    if let Some(file) = file {
        labels.set("__meta_filepath", file);
    }
    for (name, value) in group.labels.iter().flatten() {
        labels.set(name, value);
    }
    labels.set(ADDRESS_LABEL, address);
    labels.build()
}

/// The target; nothing when it is dropped.
fn relabel_target(
    config: &ScrapeConfig,
    discovered: &Labels,
) -> Result<Option<ScrapeTarget>, String> {
    let mut labels = LabelsBuilder::from_labels(discovered);
    if !config.relabeling.apply(&mut labels) {
        return Ok(None);
    }
    let address = labels.get(ADDRESS_LABEL).to_owned();
    if address.is_empty() {
        return Err("no address".to_owned());
    }
    check_address(&address)?;
    let parse_duration = |name| {
        let text = labels.get(name);
        let ms = parse_duration_ms(text).filter(|ms| (1..=DURATION_MS_MAX).contains(ms));
        ms.ok_or_else(|| format!("{name} is not a duration: {text:?}"))
    };
    let (interval_ms, timeout_ms) =
        (parse_duration(INTERVAL_LABEL)?, parse_duration(TIMEOUT_LABEL)?);
    if timeout_ms > interval_ms {
        return Err("scrape timeout cannot be greater than scrape interval".to_owned());
    }
    let url = target_url(config, &labels, &address);
    labels.retain(|name| !name.starts_with(META_PREFIX));
    if labels.get("instance").is_empty() {
        labels.set("instance", &address);
    }
    labels.retain(|name| !name.starts_with("__"));
    Ok(Some(ScrapeTarget {
        labels: labels.build(),
        url,
        discovered_labels: discovered.clone(),
        interval_ms,
        timeout_ms,
    }))
}

/// Refuses a URL, which people write where an address is wanted.
pub(super) fn check_address(address: &str) -> Result<(), String> {
    if address.contains(['/', '?', '#', '@']) || address.contains(char::is_whitespace) {
        return Err(format!(
            "{address:?} is not host:port: scheme, metrics_path and params of the job say the rest of a URL"
        ));
    }
    Ok(())
}

fn target_url(config: &ScrapeConfig, labels: &LabelsBuilder, address: &str) -> String {
    let mut params: BTreeMap<String, Vec<String>> = config.params.clone();
    for (name, value) in labels.build().iter() {
        if let Some(name) = name.strip_prefix(PARAM_PREFIX) {
            let values = params.entry(name.to_owned()).or_default();
            match values.first_mut() {
                Some(first) => value.clone_into(first),
                None => values.push(value.to_owned()),
            }
        }
    }
    let path = labels.get(PATH_LABEL);
    let slash = if path.starts_with('/') { "" } else { "/" };
    let path = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, values) in &params {
        for value in values {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    let mark = if query.is_empty() { "" } else { "?" };
    let scheme = labels.get(SCHEME_LABEL);
    format!("{scheme}://{address}{slash}{path}{mark}{query}")
}
