//! Reads jobs and targets from files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egret_outgoing::Destinations;

use super::{FetchMethod, OwnTarget, ScrapeJob, ScraperOptions};
use crate::core::scrape::{
    DroppedStatus, ScrapeConfig, ScrapeDefaults, ScrapeTarget, TargetGroup, find_targets, parse,
    parse_groups,
};
use crate::core::yaml::TEXT_BYTES_MAX;
use crate::store::files;
use crate::worker::fetch;
use crate::worker::rules::ReloadError;

/// Lists of targets are not read more often than this.
const REFRESH_MIN: Duration = Duration::from_millis(100);

/// The jobs of all files.
pub(super) struct Jobs {
    jobs: Vec<Arc<ScrapeJob>>,
    /// Jobs of this program's own, which no file changes.
    own_jobs: Vec<(ScrapeTarget, Arc<ScrapeJob>)>,
    targets_max: usize,
    defaults: ScrapeDefaults,
    /// Where targets may redirect to.
    destinations: Destinations,
}

/// The targets of all jobs.
#[derive(Default)]
pub(super) struct DiscoveredTargets {
    pub targets: BTreeMap<(String, ScrapeTarget), Arc<ScrapeJob>>,
    pub dropped: Vec<DroppedStatus>,
    pub dropped_counts: BTreeMap<String, u64>,
    pub problems: Vec<String>,
}

fn new_reload_error(problem: impl ToString) -> ReloadError {
    ReloadError { problems: vec![problem.to_string()] }
}

impl Jobs {
    /// The jobs of this program. Jobs of files are read by the first reload.
    pub(crate) fn new(own_targets: &[OwnTarget], options: &ScraperOptions) -> Self {
        Self {
            jobs: Vec::new(),
            own_jobs: own_targets
                .iter()
                .map(|own| (own.to_scrape_target(), ScrapeJob::new_in_process(own)))
                .collect(),
            targets_max: options.targets_max,
            defaults: options.defaults,
            destinations: options.destinations.clone(),
        }
    }

    /// Configurations of all jobs, those of this program first.
    pub(crate) fn configs(&self) -> impl Iterator<Item = &ScrapeConfig> {
        let own_jobs = self.own_jobs.iter().map(|(_, job)| job);
        own_jobs.chain(&self.jobs).map(|job| &job.config)
    }

    /// Reads jobs and their targets. When something is wrong, nothing changes.
    pub(crate) async fn read_jobs(
        &mut self,
        patterns: &[String],
    ) -> Result<DiscoveredTargets, ReloadError> {
        let (patterns, defaults) = (patterns.to_vec(), self.defaults);
        let configs = tokio::task::spawn_blocking(move || read_configs(&patterns, defaults))
            .await
            .map_err(new_reload_error)??;
        let is_own = |name: &str| self.own_jobs.iter().any(|(_, job)| job.config.job_name == name);
        if let Some(config) = configs.iter().find(|config| is_own(&config.job_name)) {
            let name = &config.job_name;
            return Err(new_reload_error(format!(
                "job {name:?} is Egret's own: give yours another name, or switch Egret's off (series.scrape_egret, series.scrape_postgres)"
            )));
        }
        let jobs = configs
            .into_iter()
            .map(|config| {
                let previous = self.jobs.iter().find(|job| job.config == config);
                match previous {
                    Some(unchanged) => Ok(unchanged.clone()),
                    None => ScrapeJob::new_http(config, &self.destinations),
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        let previous_jobs = std::mem::replace(&mut self.jobs, jobs);
        let discovered = self.discover_targets().await;
        if discovered.is_err() {
            self.jobs = previous_jobs;
        }
        discovered
    }

    /// The targets of the jobs, lists in files among them.
    pub(crate) async fn discover_targets(&mut self) -> Result<DiscoveredTargets, ReloadError> {
        let jobs = self.jobs.clone();
        let mut discovered = tokio::task::spawn_blocking(move || discover_all(&jobs))
            .await
            .map_err(new_reload_error)??;
        for (target, job) in &self.own_jobs {
            let name = (job.config.job_name.clone(), target.clone());
            discovered.targets.insert(name, job.clone());
        }
        let count = discovered.targets.len();
        if count > self.targets_max {
            let targets_max = self.targets_max;
            return Err(new_reload_error(format!(
                "limit series.scrape_targets_max is {targets_max}: there are {count} targets: scrape fewer, or raise it"
            )));
        }
        Ok(discovered)
    }

    /// How often lists of targets are to be read again, if there are any.
    pub(crate) fn refresh_interval(&self) -> Option<Duration> {
        let files = self.jobs.iter().flat_map(|job| &job.config.files);
        let shortest = files.map(|files| files.refresh_interval_ms.unsigned_abs()).min()?;
        Some(Duration::from_millis(shortest).max(REFRESH_MIN))
    }
}

impl ScrapeJob {
    fn new_http(
        config: ScrapeConfig,
        destinations: &Destinations,
    ) -> Result<Arc<Self>, ReloadError> {
        let client = fetch::build_client(&config, destinations).map_err(|problem| {
            let job = &config.job_name;
            new_reload_error(format!("job {job:?}: {problem}"))
        })?;
        let fetch_method = FetchMethod::Http(client);
        Ok(Arc::new(Self { config, fetch_method }))
    }

    fn new_in_process(own: &OwnTarget) -> Arc<Self> {
        Arc::new(Self {
            config: ScrapeConfig::in_process(&own.job, own.interval_ms, own.timeout_ms),
            fetch_method: FetchMethod::InProcess(own.collect.clone()),
        })
    }
}

fn read_configs(
    patterns: &[String],
    defaults: ScrapeDefaults,
) -> Result<Vec<ScrapeConfig>, ReloadError> {
    let documents =
        files::read_matching(patterns, TEXT_BYTES_MAX as u64).map_err(new_reload_error)?;
    let (mut configs, mut problems) = (Vec::<ScrapeConfig>::new(), Vec::new());
    for document in documents {
        match parse(&document.path, &document.text, defaults) {
            Ok(parsed) => configs.extend(parsed),
            Err(error) => problems.push(error.to_string()),
        }
    }
    let mut names: Vec<&str> = configs.iter().map(|config| &*config.job_name).collect();
    names.sort_unstable();
    if let Some(duplicate) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        problems.push(format!("job {:?} is in two files", duplicate[0]));
    }
    if problems.is_empty() { Ok(configs) } else { Err(ReloadError { problems }) }
}

fn discover_all(jobs: &[Arc<ScrapeJob>]) -> Result<DiscoveredTargets, ReloadError> {
    let mut discovered = DiscoveredTargets::default();
    for job in jobs {
        let config = &job.config;
        let mut file_groups: Vec<(String, TargetGroup)> = Vec::new();
        for files in &config.files {
            let documents = files::read_matching(&files.patterns, TEXT_BYTES_MAX as u64);
            for document in documents.map_err(new_reload_error)? {
                let path = &document.path;
                let groups = parse_groups(path, &document.text).map_err(new_reload_error)?;
                let checked = config.check_targets(&groups);
                checked.map_err(|problem| new_reload_error(format!("{path}: {problem}")))?;
                file_groups.extend(groups.into_iter().map(|group| (document.path.clone(), group)));
            }
        }
        let statics = config.static_groups.iter().map(|group| (None, group));
        let file_groups_with_path =
            file_groups.iter().map(|(path, group)| (Some(path.as_str()), group));
        let found_targets = find_targets(config, statics.chain(file_groups_with_path));
        let name = &config.job_name;
        discovered.problems.extend(found_targets.problems);
        discovered.dropped_counts.insert(name.clone(), found_targets.dropped_count);
        discovered.dropped.extend(found_targets.dropped.into_iter().map(|discovered_labels| {
            DroppedStatus { discovered_labels, scrape_pool: name.clone() }
        }));
        for target in found_targets.active {
            discovered.targets.insert((name.clone(), target), job.clone());
        }
    }
    Ok(discovered)
}
