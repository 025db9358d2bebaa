//! What is known of the business clusters: which one is due, and its health.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::mem::{discriminant, replace};
use std::sync::Arc;
use std::time::Duration;

use kubeon_api::KubernetesCluster;
use kubeon_operations::{ObjectRef, ObservedHealth, QueueKey};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster_api::{ClusterApi, HealthError};

/// The longest pause after a failed attempt.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// The time over which a process that begins to observe spreads its first connections.
const FIRST_SPREAD: Duration = Duration::from_secs(5);
/// An API server counts as unreachable after this number of failed attempts in a row, and as one that refuses the credential
/// after this number of refusals in a row: one that starts may refuse what it accepts later.
const MOST_FAILURES: u32 = 3;

/// A cluster that can be observed.
pub(crate) struct ObservableCluster {
    pub object: Arc<KubernetesCluster>,
    pub queue_key: QueueKey,
    /// The Secret with the kubeconfig of the observer, and its version.
    pub secret: (ObjectRef, u64),
}

/// What is known of a cluster.
struct Entry {
    due: Instant,
    busy: bool,
    /// Failed attempts in a row for any cause; 0 again when the cluster is known to refuse the credential.
    failures: u32,
    /// Refusals among them since the last other failure.
    refusals: u32,
    health: Option<ObservedHealth>,
    /// Whether the credential cannot be used; it is logged once.
    refused: bool,
    api: Option<ClusterApi>,
}

impl Entry {
    /// Counts a failed attempt. Returns the health that changes by it. The first cause stays, so that the status does not change
    /// with each attempt.
    fn fail(&mut self, found: ObservedHealth, every: Duration) -> Option<ObservedHealth> {
        let is_refusal = matches!(found, ObservedHealth::Refused(_));
        self.failures = self.failures.saturating_add(1);
        self.refusals = if is_refusal { self.refusals.saturating_add(1) } else { 0 };
        let in_a_row = if is_refusal { self.refusals } else { self.failures };
        if self.refusals >= MOST_FAILURES {
            self.failures = 0;
        }
        if in_a_row < MOST_FAILURES {
            self.due = Instant::now() + RETRY_PAUSE.min(every);
            return None;
        }
        let is_known = self.health.as_ref().is_some_and(|known| discriminant(known) == discriminant(&found));
        (!is_known).then_some(found)
    }

    /// Sets the health. True when it was another one.
    fn change(&mut self, health: Option<ObservedHealth>) -> bool {
        let changed = self.health != health;
        self.health = health;
        changed
    }
}

/// The observed health of the business clusters.
#[derive(Default)]
pub(crate) struct Observations {
    entries: Mutex<HashMap<QueueKey, Entry>>,
}

/// The number of clusters by what was observed last.
pub(crate) type HealthCounts = [(&'static str, usize); 4];

impl Observations {
    /// The health of a cluster; `None` while it is unknown.
    pub(crate) fn health(&self, queue_key: &QueueKey) -> Option<ObservedHealth> {
        self.entries.lock().get(queue_key)?.health.clone()
    }

    /// The number of observed clusters by their health.
    pub(crate) fn counts(&self) -> HealthCounts {
        let mut counts = [("ready", 0), ("degraded", 0), ("unreachable", 0), ("unknown", 0)];
        for entry in self.entries.lock().values() {
            let at = match &entry.health {
                Some(ObservedHealth::Serving { not_ready, members_down, .. })
                    if not_ready.is_empty() && members_down.is_empty() =>
                {
                    0
                }
                Some(ObservedHealth::Serving { .. }) => 1,
                Some(ObservedHealth::Unreachable(_)) => 2,
                Some(ObservedHealth::Refused(_)) | None => 3,
            };
            counts[at].1 += 1;
        }
        counts
    }

    /// The number of clusters on whose masters something differs from what operations wrote.
    pub(crate) fn drifted(&self) -> usize {
        let is_drifted = |entry: &&Entry| match &entry.health {
            Some(ObservedHealth::Serving { drift: Some(drift), .. }) => drift.count > 0,
            _ => false,
        };
        self.entries.lock().values().filter(is_drifted).count()
    }

    /// When the first certificate of any cluster ends, in seconds since 1970; 0 while none is known.
    pub(crate) fn first_certificate_end(&self) -> i64 {
        let entries = self.entries.lock();
        let ends = entries.values().filter_map(|entry| match &entry.health {
            Some(ObservedHealth::Serving { certificates, .. }) => {
                Some(certificates.as_ref()?.first_end.as_second())
            }
            _ => None,
        });
        ends.min().unwrap_or_default()
    }

    /// Forgets the clusters that are not in this list, and returns those that are due, the one that waits longest first. They count
    /// as busy from now on.
    pub(crate) fn take_due(
        &self,
        clusters: Vec<ObservableCluster>,
        most: usize,
    ) -> Vec<(ObservableCluster, Option<ClusterApi>)> {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        let known: HashSet<&QueueKey> = clusters.iter().map(|cluster| &cluster.queue_key).collect();
        entries.retain(|queue_key, _| known.contains(queue_key));
        let is_start = entries.is_empty();
        let mut due = Vec::new();
        for cluster in clusters {
            let entry = &*entries.entry(cluster.queue_key.clone()).or_insert_with_key(|queue_key| {
                // A new cluster is observed at once.
                let pause = if is_start { share_of(FIRST_SPREAD, queue_key) } else { Duration::ZERO };
                let (due, busy, refused) = (now + pause, false, false);
                Entry { due, busy, failures: 0, refusals: 0, health: None, refused, api: None }
            });
            if !entry.busy && entry.due <= now {
                due.push((entry.due, cluster));
            }
        }
        // With more clusters than places, those at the end would never have their turn.
        due.sort_by_key(|(since, _)| *since);
        due.truncate(most);
        let take = |(_, cluster): (Instant, ObservableCluster)| {
            let entry = entries.get_mut(&cluster.queue_key)?;
            entry.busy = true;
            Some((cluster, entry.api.take()))
        };
        due.into_iter().filter_map(take).collect()
    }

    /// Records an attempt. True when the health changed.
    pub(crate) fn record(
        &self,
        queue_key: &QueueKey,
        api: Option<ClusterApi>,
        result: Result<ObservedHealth, HealthError>,
        every: Duration,
    ) -> bool {
        let mut entries = self.entries.lock();
        // The cluster may have been deleted during the attempt.
        let Some(entry) = entries.get_mut(queue_key) else { return false };
        entry.busy = false;
        entry.api = api;
        entry.due = Instant::now() + every;
        let failed = match result {
            Ok(health) => {
                (entry.failures, entry.refusals, entry.refused) = (0, 0, false);
                return entry.change(Some(health));
            }
            Err(HealthError::NoCredential) => return entry.change(None),
            Err(HealthError::Unusable(why)) => {
                if !replace(&mut entry.refused, true) {
                    tracing::warn!(%queue_key, why, "the cluster cannot be observed");
                }
                return entry.change(None);
            }
            Err(HealthError::Unreachable(why)) => ObservedHealth::Unreachable(why),
            Err(HealthError::Refused(why)) => ObservedHealth::Refused(why),
        };
        entry.fail(failed, every).is_some_and(|health| entry.change(Some(health)))
    }
}

/// A part of the time that depends on the key.
fn share_of(time: Duration, queue_key: &QueueKey) -> Duration {
    let mut hasher = DefaultHasher::new();
    queue_key.to_string().hash(&mut hasher);
    let share = u32::try_from(hasher.finish() % 1000).unwrap_or_default();
    time * share / 1000
}

#[cfg(test)]
mod tests {
    use kubeon_operations::{ObjectKind, ObservedVersions};

    use super::*;

    const EVERY: Duration = Duration::from_secs(20);

    fn cluster(name: &str) -> ObservableCluster {
        let spec = serde_json::from_value(serde_json::json!({"cluster": {}})).unwrap();
        ObservableCluster {
            object: Arc::new(KubernetesCluster::new(name, spec)),
            queue_key: QueueKey::KubernetesCluster { namespace: "a".into(), name: name.into() },
            secret: (ObjectRef::new(ObjectKind::Secret, "a", "s"), 1),
        }
    }

    fn serving() -> Result<ObservedHealth, HealthError> {
        let (not_ready, members_down) = (Vec::new(), Vec::new());
        Ok(ObservedHealth::Serving {
            nodes: 1,
            not_ready,
            members_down,
            versions: ObservedVersions::default(),
            certificates: None,
            drift: None,
            renewal_due: false,
        })
    }

    fn unreachable(why: &str) -> Result<ObservedHealth, HealthError> {
        Err(HealthError::Unreachable(why.to_owned()))
    }

    fn due(observations: &Observations, names: &[&str]) -> Vec<String> {
        let clusters = names.iter().map(|name| cluster(name)).collect();
        let due = observations.take_due(clusters, 10);
        due.into_iter().map(|(cluster, _)| cluster.queue_key.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn three_failures_in_a_row_make_a_cluster_unreachable() {
        let (observations, key) = (Observations::default(), cluster("x").queue_key);
        due(&observations, &["x"]);
        let record = |result| observations.record(&key, None, result, EVERY);
        assert!(record(serving()) && !record(serving()), "only a change counts");
        assert!(!record(unreachable("first")) && !record(unreachable("second")));
        assert_eq!(observations.health(&key), serving().ok());
        assert!(!record(serving()), "the count begins again");
        for _ in 0..2 {
            assert!(!record(unreachable("early")));
        }
        assert!(record(unreachable("third")));
        assert!(!record(unreachable("fourth")), "the first cause stays");
        assert_eq!(observations.health(&key), Some(ObservedHealth::Unreachable("third".into())));
        assert_eq!(observations.counts()[2], ("unreachable", 1));
        assert!(record(serving()));
        assert!(record(Err(HealthError::Unusable("expired".into()))), "unknown again");
        assert_eq!(observations.counts()[3], ("unknown", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn three_refusals_in_a_row_make_a_cluster_one_that_refuses_the_observer() {
        let (observations, key) = (Observations::default(), cluster("x").queue_key);
        due(&observations, &["x"]);
        let record = |result| observations.record(&key, None, result, EVERY);
        let refused = |why: &str| Err(HealthError::Refused(why.to_owned()));
        assert!(record(serving()));
        assert!(!record(refused("first")) && !record(refused("second")));
        assert_eq!(observations.health(&key), serving().ok());
        assert!(record(refused("third")) && !record(refused("fourth")));
        assert_eq!(observations.health(&key), Some(ObservedHealth::Refused("third".into())));
        assert_eq!(observations.counts()[3], ("unknown", 1));
        assert!(!record(unreachable("late")) && !record(unreachable("late")));
        assert!(record(unreachable("down")), "it does not answer any more");
        assert!(!record(refused("it starts")) && !record(refused("it starts")));
        assert_eq!(observations.health(&key), Some(ObservedHealth::Unreachable("down".into())));
        assert!(!record(unreachable("down")) && !record(refused("it starts")), "not in a row");
        assert!(record(serving()));
    }

    #[tokio::test(start_paused = true)]
    async fn each_of_many_clusters_has_its_turn() {
        let observations = Observations::default();
        let names: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut seen = HashSet::new();
        for _ in 0..12 {
            tokio::time::advance(EVERY).await;
            for observed in due(&observations, &names) {
                let name = observed.rsplit('/').next().unwrap().to_owned();
                observations.record(&cluster(&name).queue_key, None, serving(), EVERY);
                seen.insert(name);
            }
        }
        assert_eq!(seen.len(), names.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_is_due_once_in_a_period_and_sooner_after_a_failure() {
        let (observations, key) = (Observations::default(), cluster("x").queue_key);
        assert_eq!(due(&observations, &["x"]).len(), 0, "the first ones of a restarted operator are spread");
        tokio::time::advance(EVERY).await;
        assert_eq!(due(&observations, &["x"]).len(), 1);
        assert_eq!(due(&observations, &["x"]).len(), 0, "it is being observed");
        observations.record(&key, None, serving(), EVERY);
        assert_eq!(due(&observations, &["x", "new"]), ["kubernetescluster/a/new"], "a new one at once");
        tokio::time::advance(EVERY).await;
        assert_eq!(due(&observations, &["x", "new"]), ["kubernetescluster/a/x"]);
        observations.record(&key, None, unreachable("down"), EVERY);
        tokio::time::advance(RETRY_PAUSE).await;
        assert_eq!(due(&observations, &["x", "new"]), ["kubernetescluster/a/x"]);
        assert_eq!(due(&observations, &["new"]).len(), 0);
        assert!(!observations.record(&key, None, serving(), EVERY), "it was deleted meanwhile");
        assert_eq!(observations.health(&key), None);
    }
}
