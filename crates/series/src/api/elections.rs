//! Of several Prometheus servers that write the same series, one is listened to: see [`crate::core::replicas`]. Whose a
//! request is, is told by two labels of its first series, as a server gives them to all it sends.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::Condition;

use super::lock;
use crate::config::SeriesConfig;
use crate::core::replicas::{Replicas, Verdict};
use crate::error::SeriesError;
use crate::store::replicas::{self, ByCluster};
use crate::wire::labels;

/// Who is elected, and how it is told.
pub(crate) struct Elections {
    cluster_label: String,
    replica_label: Arc<str>,
    clusters_max: u64,
    directory: PathBuf,
    replicas: Mutex<Replicas>,
    /// Held while the file is written.
    writing: Mutex<()>,
    unwritable: Condition,
}

/// The server that a request is from.
#[derive(Debug)]
pub(crate) struct Sender {
    cluster: Box<str>,
    replica: Box<str>,
    /// The label that has the replica.
    pub replica_label: Arc<str>,
}

/// What becomes of a request, if it can be read.
pub(crate) enum Judged {
    /// It says nothing of replicas.
    Plain,
    /// It is taken in, without the label of the replica.
    Accepted(Box<Sender>),
    /// It is dropped.
    Refused,
}

impl Elections {
    /// As settings say it; none when replicas are no matter.
    ///
    /// # Errors
    /// [`SeriesError::Invalid`] when settings contradict each other, and [`SeriesError::Io`].
    pub fn open(
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
                reason: "name it and series.ha_cluster_label, two different labels, or neither"
                    .to_owned(),
            });
        }
        let known = replicas::read(&directory)?;
        let max = usize::try_from(config.ha_clusters_max).unwrap_or(usize::MAX);
        let failover = config.ha_failover.duration();
        Ok(Some(Self {
            cluster_label: cluster.clone(),
            replica_label: replica.as_str().into(),
            clusters_max: config.ha_clusters_max.into(),
            directory,
            replicas: Mutex::new(Replicas::new(known, failover, max, now)),
            writing: Mutex::default(),
            unwritable: Condition::new("series_elections_unwritable", "series"),
        }))
    }

    /// What becomes of a request whose first series has these label fields.
    ///
    /// # Errors
    /// [`SeriesError::TooManyClusters`], and [`SeriesError::Wire`] when they are not label fields.
    pub fn judge(&self, first: &[u8], now: Duration) -> Result<Judged, SeriesError> {
        let names = [self.cluster_label.as_str(), &self.replica_label];
        let [cluster, replica] = labels::values_of(names, first)?;
        if cluster.is_empty() || replica.is_empty() {
            return Ok(Judged::Plain);
        }
        match lock(&self.replicas).judge(cluster, replica, now) {
            Verdict::Accepted | Verdict::Elected { .. } => Ok(Judged::Accepted(Box::new(Sender {
                cluster: cluster.into(),
                replica: replica.into(),
                replica_label: self.replica_label.clone(),
            }))),
            Verdict::Refused => Ok(Judged::Refused),
            Verdict::TooMany => Err(self.too_many()),
        }
    }

    /// What becomes of a request that has been read. Others may have been heard meanwhile, so that this may be other than
    /// what was judged.
    pub fn hear(&self, sender: &Sender, now: Duration) -> Verdict {
        let (cluster, replica) = (&*sender.cluster, &*sender.replica);
        let verdict = lock(&self.replicas).hear(cluster, replica, now);
        if let Verdict::Elected { before } = &verdict {
            let before = before.as_deref();
            tracing::info!(cluster, replica, before, "a replica was elected");
        }
        verdict
    }

    /// Why a request is refused of a cluster that there is no room for.
    pub fn too_many(&self) -> SeriesError {
        SeriesError::TooManyClusters {
            max: self.clusters_max,
        }
    }

    /// Writes who is elected. When that fails, it is told of and no harm is done now: after a restart others may be
    /// elected.
    pub fn remember(&self) {
        let _one_by_one = lock(&self.writing);
        let elected: ByCluster = lock(&self.replicas)
            .elected()
            .map(|(cluster, replica)| (cluster.into(), replica.into()))
            .collect();
        match replicas::write(&self.directory, &elected) {
            Ok(()) => self
                .unwritable
                .recover("elected replicas are written again"),
            Err(error) => {
                let message = "cannot write which replicas are elected; retrying";
                self.unwritable.fail(&error, message);
            }
        }
    }
}
