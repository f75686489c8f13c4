//! Which of several Prometheus servers that watch the same targets is listened to. The servers of
//! one *cluster* are its *replicas*; one is *elected* and the samples of the others are dropped.
//! When nothing has come from it for a while, whichever sends next is elected.

use std::collections::BTreeMap;
use std::time::Duration;

/// Decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ElectionResult {
    /// It is from the elected replica.
    Accepted,
    /// It is from a replica that has just been elected, in the place of another perhaps.
    Elected {
        /// Replica that was elected before, if any.
        previous: Option<Box<str>>,
    },
    /// It is from another replica: its samples are dropped.
    Refused,
    /// It is from a new cluster, and there are too many.
    TooMany,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ReplicaLease {
    replica: Box<str>,
    /// Time of its last valid request.
    last_request_at: Duration,
}

/// The elected replica of each cluster. Moments are durations since some common beginning.
#[derive(Clone, Debug)]
pub(crate) struct Replicas {
    by_cluster: BTreeMap<Box<str>, ReplicaLease>,
    failover: Duration,
    clusters_max: usize,
}

impl Replicas {
    /// Begins with what was known before, as if each had sent something `now`: it has `failover` to
    /// come back.
    pub(crate) fn new(
        elected: impl IntoIterator<Item = (Box<str>, Box<str>)>,
        failover: Duration,
        clusters_max: usize,
        now: Duration,
    ) -> Self {
        let leases = elected.into_iter().map(|(cluster, replica)| {
            let heard_at = now;
            (cluster, ReplicaLease { replica, last_request_at: heard_at })
        });
        Self { by_cluster: leases.collect(), failover, clusters_max }
    }

    /// Decides on a request of a replica of a cluster, if it is the next one that
    /// [`Replicas::record_request`] is called for.
    pub(crate) fn decide(&self, cluster: &str, replica: &str, now: Duration) -> ElectionResult {
        let Some(lease) = self.by_cluster.get(cluster) else {
            let is_full = self.by_cluster.len() >= self.clusters_max;
            return if is_full && !self.by_cluster.values().any(|one| self.is_silent(one, now)) {
                ElectionResult::TooMany
            } else {
                ElectionResult::Elected { previous: None }
            };
        };
        if *lease.replica == *replica {
            return ElectionResult::Accepted;
        }
        if self.is_silent(lease, now) {
            ElectionResult::Elected { previous: Some(lease.replica.clone()) }
        } else {
            ElectionResult::Refused
        }
    }

    /// Like [`Replicas::decide`], for a request that was read to its end: also notes the elected
    /// replica and when it was heard.
    pub(crate) fn record_request(
        &mut self,
        cluster: &str,
        replica: &str,
        now: Duration,
    ) -> ElectionResult {
        let result = self.decide(cluster, replica, now);
        match &result {
            ElectionResult::Refused | ElectionResult::TooMany => {}
            ElectionResult::Accepted => {
                if let Some(lease) = self.by_cluster.get_mut(cluster) {
                    lease.last_request_at = now;
                }
            }
            ElectionResult::Elected { previous: before } => {
                if before.is_none() && self.by_cluster.len() >= self.clusters_max {
                    // Of one that is silent for so long, any replica would be elected: nothing is
                    // lost with it.
                    let failover = self.failover;
                    self.by_cluster.retain(|_, elected| {
                        now.saturating_sub(elected.last_request_at) < failover
                    });
                }
                let elected = ReplicaLease { replica: replica.into(), last_request_at: now };
                self.by_cluster.insert(cluster.into(), elected);
            }
        }
        result
    }

    fn is_silent(&self, lease: &ReplicaLease, now: Duration) -> bool {
        now.saturating_sub(lease.last_request_at) >= self.failover
    }

    /// Each cluster with its elected replica, by name.
    pub(crate) fn elected_replicas(&self) -> impl Iterator<Item = (&str, &str)> {
        let leases = self.by_cluster.iter();
        leases.map(|(cluster, elected)| (&**cluster, &*elected.replica))
    }
}

#[cfg(test)]
mod tests;
