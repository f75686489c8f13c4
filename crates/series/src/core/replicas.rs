//! Which of several Prometheus servers that watch the same targets is listened to. The servers of one *cluster* are its
//! *replicas*; one is *elected* and the samples of the others are dropped. When nothing has come from it for a while,
//! whichever sends next is elected.

use std::collections::BTreeMap;
use std::time::Duration;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is from the elected replica.
    Accepted,
    /// It is from a replica that has just been elected, in the place of another perhaps.
    Elected {
        /// Who was listened to before.
        before: Option<Box<str>>,
    },
    /// It is from another replica: its samples are dropped.
    Refused,
    /// It is from a cluster that there is no room for.
    TooMany,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Elected {
    replica: Box<str>,
    /// When something last came from it that could be read.
    heard_at: Duration,
}

/// The elected replica of each cluster. Moments are durations since some common beginning.
#[derive(Clone, Debug)]
pub struct Replicas {
    by_cluster: BTreeMap<Box<str>, Elected>,
    failover: Duration,
    clusters_max: usize,
}

impl Replicas {
    /// Begins with what was known before, as if each had sent something `now`: it has `failover` to come back.
    pub fn new(
        known: impl IntoIterator<Item = (Box<str>, Box<str>)>,
        failover: Duration,
        clusters_max: usize,
        now: Duration,
    ) -> Self {
        let known = known.into_iter().map(|(cluster, replica)| {
            let heard_at = now;
            (cluster, Elected { replica, heard_at })
        });
        Self {
            by_cluster: known.collect(),
            failover,
            clusters_max,
        }
    }

    /// What becomes of a request of a replica of a cluster, as long as nobody else is [heard](Replicas::hear).
    pub fn judge(&self, cluster: &str, replica: &str, now: Duration) -> Verdict {
        let Some(elected) = self.by_cluster.get(cluster) else {
            let is_full = self.by_cluster.len() >= self.clusters_max;
            return match is_full && !self.by_cluster.values().any(|one| self.is_silent(one, now)) {
                true => Verdict::TooMany,
                false => Verdict::Elected { before: None },
            };
        };
        if *elected.replica == *replica {
            return Verdict::Accepted;
        }
        match self.is_silent(elected, now) {
            true => Verdict::Elected {
                before: Some(elected.replica.clone()),
            },
            false => Verdict::Refused,
        }
    }

    /// The same of a request that has been read whole, and notes who is elected and was heard by it.
    pub fn hear(&mut self, cluster: &str, replica: &str, now: Duration) -> Verdict {
        let verdict = self.judge(cluster, replica, now);
        match &verdict {
            Verdict::Refused | Verdict::TooMany => {}
            Verdict::Accepted => {
                if let Some(elected) = self.by_cluster.get_mut(cluster) {
                    elected.heard_at = now;
                }
            }
            Verdict::Elected { before } => {
                if before.is_none() && self.by_cluster.len() >= self.clusters_max {
                    // Of one that is silent for so long, any replica would be elected: nothing is lost with it.
                    let failover = self.failover;
                    self.by_cluster
                        .retain(|_, elected| now.saturating_sub(elected.heard_at) < failover);
                }
                let elected = Elected {
                    replica: replica.into(),
                    heard_at: now,
                };
                self.by_cluster.insert(cluster.into(), elected);
            }
        }
        verdict
    }

    fn is_silent(&self, elected: &Elected, now: Duration) -> bool {
        now.saturating_sub(elected.heard_at) >= self.failover
    }

    /// Each cluster with its elected replica, by name.
    pub fn elected(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.by_cluster.iter();
        all.map(|(cluster, elected)| (&**cluster, &*elected.replica))
    }
}

#[cfg(test)]
mod tests;
