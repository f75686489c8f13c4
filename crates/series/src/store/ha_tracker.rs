//! High availability of senders: of several Prometheus servers that write the same series, one is
//! elected (see [`crate::core::replicas`]). Two labels of the first series of a request name its
//! cluster and replica, as a server gives them to all series that it sends.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::Condition;
use egret_base::sync::lock;
use egret_metrics_wire::labels;

use super::replicas::{self, ByCluster};
use crate::config::SeriesConfig;
use crate::core::replicas::{ElectionResult, Replicas};
use crate::error::SeriesError;

/// Tracks the elected replica of each cluster of senders, and keeps it in a file.
pub(crate) struct HaTracker {
    cluster_label: String,
    replica_label: Arc<str>,
    clusters_max: u64,
    directory: PathBuf,
    replicas: Mutex<Replicas>,
    /// Held while the file is written.
    write_lock: Mutex<()>,
    write_failure: Condition,
}

/// The server that a request is from.
#[derive(Debug)]
pub(crate) struct HaReplica {
    cluster: Box<str>,
    replica: Box<str>,
    /// The label that has the replica.
    pub replica_label: Arc<str>,
}

/// Decision about a request, if it can be read.
pub(crate) enum HaDecision {
    /// It lacks the label of the cluster or of the replica.
    NotReplicated,
    /// It is taken in, without the label of the replica.
    Accepted(Box<HaReplica>),
    Refused,
}

impl HaTracker {
    /// Opens the tracker as configured; `None` if no labels of replicas are set.
    ///
    /// # Errors
    /// [`SeriesError::Invalid`] when settings contradict each other, and [`SeriesError::Io`].
    pub(crate) fn open(
        config: &SeriesConfig,
        directory: PathBuf,
        now: Duration,
    ) -> Result<Option<Self>, SeriesError> {
        let (cluster, replica) = (&config.ha_cluster_label, &config.ha_replica_label);
        if cluster.is_empty() && replica.is_empty() {
            return Ok(None);
        }
        if cluster.is_empty() || replica.is_empty() || cluster == replica {
            return Err(SeriesError::Invalid {
                what: "series.ha_replica_label",
                reason:
                    "set it and series.ha_cluster_label to two different labels, or set neither"
                        .to_owned(),
            });
        }
        let elected = replicas::read(&directory)?;
        let max = usize::try_from(config.ha_clusters_max).unwrap_or(usize::MAX);
        let failover = config.ha_failover.duration();
        Ok(Some(Self {
            cluster_label: cluster.clone(),
            replica_label: replica.as_str().into(),
            clusters_max: config.ha_clusters_max.into(),
            directory,
            replicas: Mutex::new(Replicas::new(elected, failover, max, now)),
            write_lock: Mutex::default(),
            write_failure: Condition::new("series_elections_unwritable", "series"),
        }))
    }

    /// What becomes of a request whose first series has these label fields.
    ///
    /// # Errors
    /// [`SeriesError::TooManyClusters`], and [`SeriesError::Wire`] when they are not label fields.
    pub(crate) fn decide(
        &self,
        first_labels: &[u8],
        now: Duration,
    ) -> Result<HaDecision, SeriesError> {
        let names = [self.cluster_label.as_str(), &self.replica_label];
        let [cluster, replica] = labels::find_values(names, first_labels)?;
        if cluster.is_empty() || replica.is_empty() {
            return Ok(HaDecision::NotReplicated);
        }
        match lock(&self.replicas).decide(cluster, replica, now) {
            ElectionResult::Accepted | ElectionResult::Elected { .. } => {
                Ok(HaDecision::Accepted(Box::new(HaReplica {
                    cluster: cluster.into(),
                    replica: replica.into(),
                    replica_label: self.replica_label.clone(),
                })))
            }
            ElectionResult::Refused => Ok(HaDecision::Refused),
            ElectionResult::TooMany => Err(self.too_many_clusters_error()),
        }
    }

    /// What becomes of a request that has been read. Others may have been heard meanwhile, so that
    /// this may be other than what was judged.
    pub(crate) fn record_request(&self, sender: &HaReplica, now: Duration) -> ElectionResult {
        let (cluster, replica) = (&*sender.cluster, &*sender.replica);
        let result = lock(&self.replicas).record_request(cluster, replica, now);
        if let ElectionResult::Elected { previous: before } = &result {
            let before = before.as_deref();
            tracing::info!(cluster, replica, before, "a replica was elected");
        }
        result
    }

    /// Why a request is refused of a cluster that there is no room for.
    pub(crate) fn too_many_clusters_error(&self) -> SeriesError {
        SeriesError::TooManyClusters { max: self.clusters_max }
    }

    /// Writes the elected replicas to their file. A failure is logged and otherwise harmless: after
    /// a restart, other replicas may be elected.
    pub(crate) fn write_elected(&self) {
        let _write_guard = lock(&self.write_lock);
        let elected: ByCluster = lock(&self.replicas)
            .elected_replicas()
            .map(|(cluster, replica)| (cluster.into(), replica.into()))
            .collect();
        match replicas::write(&self.directory, &elected) {
            Ok(()) => self.write_failure.recover("writing the elected replicas works again"),
            Err(error) => {
                let message = "cannot write the elected replicas; retrying";
                self.write_failure.fail(&error, message);
            }
        }
    }
}
