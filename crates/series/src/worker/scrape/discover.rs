//! Reads jobs and targets from files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egret_outgoing::Destinations;

use super::{Ask, OwnTarget, ScrapeJob, ScraperOptions};
use crate::core::scrape::{
    DroppedStatus, ScrapeConfig, ScrapeDefaults, ScrapeTarget, TargetGroup, find, parse,
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
    own: Vec<(ScrapeTarget, Arc<ScrapeJob>)>,
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

fn reload_error(problem: impl ToString) -> ReloadError {
    ReloadError {
        problems: vec![problem.to_string()],
    }
}

impl Jobs {
    /// The jobs of this program. Jobs of files are read by the first reload.
    pub(crate) fn new(own: &[OwnTarget], options: &ScraperOptions) -> Self {
        Self {
            jobs: Vec::new(),
            own: own
                .iter()
                .map(|own| (own.target(), ScrapeJob::own(own)))
                .collect(),
            targets_max: options.targets_max,
            defaults: options.defaults,
            destinations: options.destinations.clone(),
        }
    }

    /// Configurations of all jobs, those of this program first.
    pub(crate) fn configs(&self) -> impl Iterator<Item = &ScrapeConfig> {
        let own = self.own.iter().map(|(_, job)| job);
        own.chain(&self.jobs).map(|job| &job.config)
    }

    /// Reads jobs and their targets. When something is wrong, nothing changes.
    pub(crate) async fn read(
        &mut self,
        patterns: &[String],
    ) -> Result<DiscoveredTargets, ReloadError> {
        let (patterns, defaults) = (patterns.to_vec(), self.defaults);
        let configs = tokio::task::spawn_blocking(move || read_configs(&patterns, defaults))
            .await
            .map_err(reload_error)??;
        let is_own = |name: &str| self.own.iter().any(|(_, job)| job.config.job_name == name);
        if let Some(config) = configs.iter().find(|config| is_own(&config.job_name)) {
            let name = &config.job_name;
            return Err(reload_error(format!(
                "job {name:?} is Egret's own: give yours another name, or switch Egret's off (series.scrape_egret, series.scrape_postgres)"
            )));
        }
        let jobs = configs
            .into_iter()
            .map(|config| {
                let before = self.jobs.iter().find(|job| job.config == config);
                match before {
                    Some(same) => Ok(same.clone()),
                    None => ScrapeJob::by_http(config, &self.destinations),
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        let before = std::mem::replace(&mut self.jobs, jobs);
        let found = self.find().await;
        if found.is_err() {
            self.jobs = before;
        }
        found
    }

    /// The targets of the jobs, lists in files among them.
    pub(crate) async fn find(&mut self) -> Result<DiscoveredTargets, ReloadError> {
        let jobs = self.jobs.clone();
        let mut found = tokio::task::spawn_blocking(move || find_all(&jobs))
            .await
            .map_err(reload_error)??;
        for (target, job) in &self.own {
            let name = (job.config.job_name.clone(), target.clone());
            found.targets.insert(name, job.clone());
        }
        let count = found.targets.len();
        if count > self.targets_max {
            let most = self.targets_max;
            return Err(reload_error(format!(
                "limit series.scrape_targets_max is {most}: there are {count} targets: scrape fewer, or raise it"
            )));
        }
        Ok(found)
    }

    /// How often lists of targets are to be read again, if there are any.
    pub(crate) fn refresh(&self) -> Option<Duration> {
        let files = self.jobs.iter().flat_map(|job| &job.config.files);
        let shortest = files.map(|files| files.refresh_ms.unsigned_abs()).min()?;
        Some(Duration::from_millis(shortest).max(REFRESH_MIN))
    }
}

impl ScrapeJob {
    fn by_http(
        config: ScrapeConfig,
        destinations: &Destinations,
    ) -> Result<Arc<Self>, ReloadError> {
        let client = fetch::client(&config, destinations).map_err(|problem| {
            let job = &config.job_name;
            reload_error(format!("job {job:?}: {problem}"))
        })?;
        let ask = Ask::Http(client);
        Ok(Arc::new(Self { config, ask }))
    }

    fn own(own: &OwnTarget) -> Arc<Self> {
        Arc::new(Self {
            config: ScrapeConfig::within(&own.job, own.interval_ms, own.timeout_ms),
            ask: Ask::Own(own.collect.clone()),
        })
    }
}

fn read_configs(
    patterns: &[String],
    defaults: ScrapeDefaults,
) -> Result<Vec<ScrapeConfig>, ReloadError> {
    let documents = files::read_matching(patterns, TEXT_BYTES_MAX as u64).map_err(reload_error)?;
    let (mut configs, mut problems) = (Vec::<ScrapeConfig>::new(), Vec::new());
    for document in documents {
        match parse(&document.path, &document.text, defaults) {
            Ok(read) => configs.extend(read),
            Err(error) => problems.push(error.to_string()),
        }
    }
    let mut names: Vec<&str> = configs.iter().map(|config| &*config.job_name).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
        problems.push(format!("job {:?} is in two files", twice[0]));
    }
    if problems.is_empty() {
        Ok(configs)
    } else {
        Err(ReloadError { problems })
    }
}

fn find_all(jobs: &[Arc<ScrapeJob>]) -> Result<DiscoveredTargets, ReloadError> {
    let mut all = DiscoveredTargets::default();
    for job in jobs {
        let config = &job.config;
        let mut lists: Vec<(String, TargetGroup)> = Vec::new();
        for files in &config.files {
            let documents = files::read_matching(&files.patterns, TEXT_BYTES_MAX as u64);
            for document in documents.map_err(reload_error)? {
                let path = &document.path;
                let groups = parse_groups(path, &document.text).map_err(reload_error)?;
                let checked = config.check_targets(&groups);
                checked.map_err(|problem| reload_error(format!("{path}: {problem}")))?;
                lists.extend(
                    groups
                        .into_iter()
                        .map(|group| (document.path.clone(), group)),
                );
            }
        }
        let statics = config.statics.iter().map(|group| (None, group));
        let listed = lists
            .iter()
            .map(|(path, group)| (Some(path.as_str()), group));
        let found = find(config, statics.chain(listed));
        let name = &config.job_name;
        all.problems.extend(found.problems);
        all.dropped_counts.insert(name.clone(), found.dropped_count);
        all.dropped.extend(
            found
                .dropped
                .into_iter()
                .map(|discovered_labels| DroppedStatus {
                    discovered_labels,
                    scrape_pool: name.clone(),
                }),
        );
        for target in found.active {
            all.targets.insert((name.clone(), target), job.clone());
        }
    }
    Ok(all)
}
