//! From lists of targets to targets: labels, relabelling, address.

use std::collections::BTreeMap;

use egret_metrics_model::number::{DURATION_MS_MAX, duration_ms};
use egret_metrics_model::{Labels, LabelsBuilder};

use super::config::{ScrapeConfig, TargetGroup};

/// The labels that say how a target is scraped. They can be relabelled, and are no labels of its
/// samples.
const ADDRESS: &str = "__address__";
const SCHEME: &str = "__scheme__";
const PATH: &str = "__metrics_path__";
const INTERVAL: &str = "__scrape_interval__";
const TIMEOUT: &str = "__scrape_timeout__";
const PARAM: &str = "__param_";
const META: &str = "__meta_";

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
    pub discovered: Labels,
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
pub fn find<'a>(
    config: &ScrapeConfig,
    groups: impl IntoIterator<Item = (Option<&'a str>, &'a TargetGroup)>,
) -> Targets {
    let mut targets = Targets::default();
    for (file, group) in groups {
        for address in &group.targets {
            let discovered = discovered(config, file, group, address);
            match relabeled(config, &discovered) {
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
    targets
        .active
        .dedup_by(|a, b| a.labels == b.labels && a.url == b.url);
    let (count, most) = (targets.active.len() as u64, config.limits.targets);
    if most > 0 && count > most {
        targets.active.clear();
        let job = &config.job_name;
        let problem = format!("job {job:?}: target_limit exceeded ({count} targets, limit {most})");
        targets.problems.push(problem);
    }
    targets
}

fn discovered(
    config: &ScrapeConfig,
    file: Option<&str>,
    group: &TargetGroup,
    address: &str,
) -> Labels {
    let mut labels = LabelsBuilder::default();
    labels.set("job", &config.job_name);
    labels.set(INTERVAL, &format!("{}ms", config.interval_ms));
    labels.set(TIMEOUT, &format!("{}ms", config.timeout_ms));
    labels.set(PATH, &config.metrics_path);
    labels.set(SCHEME, &config.scheme);
    for (name, values) in &config.params {
        if let Some(first) = values.first() {
            labels.set(&format!("{PARAM}{name}"), first);
        }
    }
    if let Some(file) = file {
        labels.set("__meta_filepath", file);
    }
    for (name, value) in group.labels.iter().flatten() {
        labels.set(name, value);
    }
    labels.set(ADDRESS, address);
    labels.build()
}

/// The target; nothing when it is dropped.
fn relabeled(config: &ScrapeConfig, discovered: &Labels) -> Result<Option<ScrapeTarget>, String> {
    let mut labels = LabelsBuilder::from_labels(discovered);
    if !config.relabeling.apply(&mut labels) {
        return Ok(None);
    }
    let address = labels.get(ADDRESS).to_owned();
    if address.is_empty() {
        return Err("no address".to_owned());
    }
    check_address(&address)?;
    let time = |name| {
        let text = labels.get(name);
        let ms = duration_ms(text).filter(|ms| (1..=DURATION_MS_MAX).contains(ms));
        ms.ok_or_else(|| format!("{name} is not a duration: {text:?}"))
    };
    let (interval_ms, timeout_ms) = (time(INTERVAL)?, time(TIMEOUT)?);
    if timeout_ms > interval_ms {
        return Err("scrape timeout cannot be greater than scrape interval".to_owned());
    }
    let url = url(config, &labels, &address);
    labels.retain(|name| !name.starts_with(META));
    if labels.get("instance").is_empty() {
        labels.set("instance", &address);
    }
    labels.retain(|name| !name.starts_with("__"));
    Ok(Some(ScrapeTarget {
        labels: labels.build(),
        url,
        discovered: discovered.clone(),
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

fn url(config: &ScrapeConfig, labels: &LabelsBuilder, address: &str) -> String {
    let mut params: BTreeMap<String, Vec<String>> = config.params.clone();
    for (name, value) in labels.build().iter() {
        if let Some(name) = name.strip_prefix(PARAM) {
            let values = params.entry(name.to_owned()).or_default();
            match values.first_mut() {
                Some(first) => value.clone_into(first),
                None => values.push(value.to_owned()),
            }
        }
    }
    let path = labels.get(PATH);
    let slash = if path.starts_with('/') { "" } else { "/" };
    let path = path
        .replace('%', "%25")
        .replace('?', "%3F")
        .replace('#', "%23");
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, values) in &params {
        for value in values {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    let mark = if query.is_empty() { "" } else { "?" };
    let scheme = labels.get(SCHEME);
    format!("{scheme}://{address}{slash}{path}{mark}{query}")
}
