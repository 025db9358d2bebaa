//! The limits of operations that run at the same time: of all, and of the clusters of each region. An operation gets a place in
//! the order of its creation, keeps it until it has ended, and gives it back when it turns out that it cannot start yet, for
//! example because it is paused.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kubeon_api::ClusterOperation;
use kubeon_operations::{QueueKey, StartPermission};
use parking_lot::Mutex;

/// The order in which operations get places: by creation, then by name.
type StartOrder = (Timestamp, String);

/// The places for running operations. Of each queue key, one operation runs at a time.
pub(crate) struct OperationLimit {
    limits: OperationLimits,
    state: Mutex<State>,
}

/// The most operations that run at the same time.
#[derive(Debug, Clone, Copy, Default)]
pub struct OperationLimits {
    /// Of all.
    pub all: Option<NonZeroUsize>,
    /// Of clusters of one region. Clusters without a region have only the other limit.
    pub region: Option<NonZeroUsize>,
}

impl OperationLimits {
    fn is_unlimited(self) -> bool {
        self.all.is_none() && self.region.is_none()
    }
}

#[derive(Default)]
struct State {
    taken: HashMap<QueueKey, TakenPlace>,
    waiting: HashMap<QueueKey, WaitingOperation>,
}

struct TakenPlace {
    uid: String,
    region: Option<String>,
}

struct WaitingOperation {
    order: StartOrder,
    region: Option<String>,
}

impl OperationLimit {
    pub(crate) fn new(limits: OperationLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Takes the places of the operations that another process started, and remembers which ones wait. `open` are all operations
    /// that have not ended, each with the region of its cluster.
    pub(crate) fn restore(&self, open: &[(Arc<ClusterOperation>, Option<String>)]) {
        if self.limits.is_unlimited() {
            return;
        }
        let mut state = self.state.lock();
        for (operation, region) in open {
            let (queue_key, region) = (QueueKey::of(operation), region.clone());
            if has_job(operation) {
                state.taken.insert(queue_key, TakenPlace { uid: uid(operation), region });
            } else {
                let order = start_order(operation);
                let first = state
                    .waiting
                    .entry(queue_key)
                    .or_insert(WaitingOperation { order: order.clone(), region });
                first.order = order.min(first.order.clone());
            }
        }
        let State { taken, waiting } = &mut *state;
        waiting.retain(|queue_key, _| !taken.contains_key(queue_key));
    }

    /// Whether `first`, the first open operation of the queue key, may start, and the keys that may have a place now. `region` is
    /// that of the cluster.
    pub(crate) fn permission(
        &self,
        queue_key: &QueueKey,
        region: Option<&str>,
        first: Option<&ClusterOperation>,
    ) -> (StartPermission, Vec<QueueKey>) {
        if self.limits.is_unlimited() {
            return (StartPermission::Now, Vec::new());
        }
        let mut state = self.state.lock();
        let Some(first) = first else {
            let waited = state.waiting.remove(queue_key).is_some();
            let ran = state.taken.remove(queue_key).is_some();
            return (
                StartPermission::Now,
                if waited || ran { state.startable(self.limits) } else { Vec::new() },
            );
        };
        let (uid, region) = (uid(first), region.map(str::to_owned));
        let has_place = state.taken.get(queue_key).is_some_and(|place| place.uid == uid);
        if has_job(first) || has_place {
            state.waiting.remove(queue_key);
            state.taken.insert(queue_key.clone(), TakenPlace { uid, region });
            return (StartPermission::Now, Vec::new());
        }
        // An earlier operation of the key had the place.
        let had_one = state.taken.remove(queue_key).is_some();
        let waiting = WaitingOperation { order: start_order(first), region: region.clone() };
        state.waiting.insert(queue_key.clone(), waiting);
        let mut next = state.startable(self.limits);
        if next.contains(queue_key) {
            state.waiting.remove(queue_key);
            state.taken.insert(queue_key.clone(), TakenPlace { uid, region });
            return (StartPermission::Now, Vec::new());
        }
        if !had_one {
            next.clear();
        }
        (state.wait(self.limits, queue_key), next)
    }

    /// The first open operation of the queue key does not start yet. Returns the keys that may have its place now.
    pub(crate) fn not_started(&self, queue_key: &QueueKey) -> Vec<QueueKey> {
        if self.limits.is_unlimited() {
            return Vec::new();
        }
        let mut state = self.state.lock();
        if state.taken.remove(queue_key).is_some() { state.startable(self.limits) } else { Vec::new() }
    }
}

impl State {
    /// The waiting keys that have a place now, in their order. One whose region is full does not hold up those of others.
    fn startable(&self, limits: OperationLimits) -> Vec<QueueKey> {
        let mut free = limits.all.map_or(usize::MAX, |all| all.get().saturating_sub(self.taken.len()));
        let mut in_region: HashMap<&str, usize> = HashMap::new();
        for region in self.taken.values().filter_map(|place| place.region.as_deref()) {
            *in_region.entry(region).or_default() += 1;
        }
        let mut waiting: Vec<_> = self.waiting.iter().collect();
        waiting.sort_by(|a, b| a.1.order.cmp(&b.1.order));
        let mut startable = Vec::new();
        for (queue_key, operation) in waiting {
            if free == 0 {
                break;
            }
            if let (Some(region), Some(limit)) = (operation.region.as_deref(), limits.region) {
                let taken = in_region.entry(region).or_default();
                if *taken >= limit.get() {
                    continue;
                }
                *taken += 1;
            }
            free -= 1;
            startable.push(queue_key.clone());
        }
        startable
    }

    /// Which limit a waiting key waits for.
    fn wait(&self, limits: OperationLimits, queue_key: &QueueKey) -> StartPermission {
        let Some(this) = self.waiting.get(queue_key) else { return StartPermission::Now };
        let is_earlier = |other: &&WaitingOperation| other.order < this.order;
        if let (Some(region), Some(limit)) = (&this.region, limits.region) {
            let is_here = |other: &Option<String>| other.as_ref() == Some(region);
            let taken = self.taken.values().filter(|place| is_here(&place.region)).count();
            let before =
                self.waiting.values().filter(is_earlier).filter(|other| is_here(&other.region)).count();
            if taken + before >= limit.get() {
                return StartPermission::Later { limit: limit.get(), before, region: Some(region.clone()) };
            }
        }
        let limit = limits.all.map_or(usize::MAX, NonZeroUsize::get);
        let before = self.waiting.values().filter(is_earlier).count();
        StartPermission::Later { limit, before, region: None }
    }
}

/// Whether the Job of the operation was created.
pub(crate) fn has_job(operation: &ClusterOperation) -> bool {
    operation.status.as_ref().is_some_and(|status| status.job_ref.is_some())
}

fn uid(operation: &ClusterOperation) -> String {
    operation.metadata.uid.clone().unwrap_or_default()
}

fn start_order(operation: &ClusterOperation) -> StartOrder {
    let created = operation.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
    (created, operation.metadata.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kubeon_api::DataRef;
    use kubeon_api::kubeonkube::{ClusterOperationSpec, ClusterOperationStatus};

    use super::*;

    fn key(name: &str) -> QueueKey {
        QueueKey::Cluster(name.to_owned())
    }

    fn operation(name: &str, second: i64) -> ClusterOperation {
        let mut operation = ClusterOperation::new(name, ClusterOperationSpec::default());
        operation.metadata.uid = Some(format!("uid-of-{name}"));
        operation.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        operation
    }

    fn running(name: &str, second: i64) -> ClusterOperation {
        let status = ClusterOperationStatus {
            job_ref: Some(DataRef::new("ns", name)),
            ..ClusterOperationStatus::default()
        };
        ClusterOperation { status: Some(status), ..operation(name, second) }
    }

    /// As it is in the cache. Its cluster has its name.
    fn observed(mut operation: ClusterOperation) -> (Arc<ClusterOperation>, Option<String>) {
        operation.spec.cluster = operation.metadata.name.clone().unwrap();
        (Arc::new(operation), None)
    }

    fn places(limit: usize) -> OperationLimit {
        OperationLimit::new(OperationLimits { all: NonZeroUsize::new(limit), region: None })
    }

    #[test]
    fn operations_get_places_in_the_order_of_their_creation() {
        let places = places(2);
        for (name, second) in [("a", 1), ("b", 2)] {
            assert_eq!(
                places.permission(&key(name), None, Some(&operation(name, second))).0,
                StartPermission::Now
            );
        }
        let later = |before| StartPermission::Later { limit: 2, before, region: None };
        assert_eq!(places.permission(&key("d"), None, Some(&operation("d", 4))).0, later(0));
        assert_eq!(places.permission(&key("c"), None, Some(&operation("c", 3))).0, later(0));
        assert_eq!(
            places.permission(&key("d"), None, Some(&operation("d", 4))).0,
            later(1),
            "c was created before d"
        );
        // The operation of a has ended.
        assert_eq!(places.permission(&key("a"), None, None).1, [key("c")]);
        assert_eq!(
            places.permission(&key("d"), None, Some(&operation("d", 4))).0,
            later(1),
            "c is before it"
        );
        assert_eq!(places.permission(&key("c"), None, Some(&operation("c", 3))).0, StartPermission::Now);
    }

    #[test]
    fn an_operation_that_does_not_start_gives_its_place_back() {
        let places = places(1);
        assert_eq!(
            places.permission(&key("paused"), None, Some(&operation("paused", 1))).0,
            StartPermission::Now
        );
        assert!(places.permission(&key("b"), None, Some(&operation("b", 2))).0 != StartPermission::Now);
        assert_eq!(places.not_started(&key("paused")), [key("b")]);
        assert_eq!(places.not_started(&key("paused")), [], "it has none");
        assert_eq!(places.permission(&key("b"), None, Some(&operation("b", 2))).0, StartPermission::Now);
    }

    #[test]
    fn running_operations_keep_their_places_after_a_restart_also_above_the_limit() {
        let places = places(1);
        places.restore(&["a", "b"].map(|name| observed(running(name, 1))));
        let waits = StartPermission::Later { limit: 1, before: 0, region: None };
        assert_eq!(places.permission(&key("c"), None, Some(&operation("c", 2))).0, waits);
        assert_eq!(places.permission(&key("a"), None, None).1, [], "the other one still runs");
        assert_eq!(places.permission(&key("b"), None, None).1, [key("c")]);
    }

    #[test]
    fn operations_that_waited_before_a_restart_keep_their_order() {
        let places = places(1);
        places.restore(&[("b", 2), ("a", 1)].map(|(name, second)| observed(operation(name, second))));
        let waits = StartPermission::Later { limit: 1, before: 1, region: None };
        assert_eq!(
            places.permission(&key("b"), None, Some(&operation("b", 2))).0,
            waits,
            "a has not asked yet"
        );
        assert_eq!(places.permission(&key("a"), None, None).1, [key("b")], "a was deleted meanwhile");
        assert_eq!(places.permission(&key("b"), None, Some(&operation("b", 2))).0, StartPermission::Now);
    }

    #[test]
    fn the_next_operation_of_a_cluster_waits_behind_those_of_other_clusters() {
        let places = places(1);
        assert_eq!(places.permission(&key("a"), None, Some(&running("a1", 1))).0, StartPermission::Now);
        assert!(places.permission(&key("b"), None, Some(&operation("b", 2))).0 != StartPermission::Now);
        let (permission, next) = places.permission(&key("a"), None, Some(&operation("a2", 3)));
        assert_eq!(
            (permission, next),
            (StartPermission::Later { limit: 1, before: 1, region: None }, vec![key("b")])
        );
    }

    #[test]
    fn without_a_limit_every_operation_starts() {
        let places = OperationLimit::new(OperationLimits::default());
        for second in 0..100 {
            let name = second.to_string();
            assert_eq!(
                places.permission(&key(&name), None, Some(&operation(&name, second))).0,
                StartPermission::Now
            );
        }
    }

    /// A full region does not hold up another one, and a free place of all goes to the oldest that may have it.
    #[test]
    fn the_clusters_of_a_region_have_their_own_limit() {
        let limits = OperationLimits { all: NonZeroUsize::new(3), region: NonZeroUsize::new(1) };
        let places = OperationLimit::new(limits);
        let ask = |name: &str, region: Option<&str>, second: i64| {
            places.permission(&key(name), region, Some(&operation(name, second)))
        };
        assert_eq!(ask("a", Some("north"), 1).0, StartPermission::Now);
        let waits = |before| StartPermission::Later { limit: 1, before, region: Some("north".to_owned()) };
        assert_eq!(ask("b", Some("north"), 2).0, waits(0));
        assert_eq!(ask("c", Some("north"), 3).0, waits(1));
        assert_eq!(ask("d", Some("south"), 4).0, StartPermission::Now);
        assert_eq!(ask("e", None, 5).0, StartPermission::Now);
        let full = StartPermission::Later { limit: 3, before: 2, region: None };
        assert_eq!(ask("f", None, 6).0, full);
        let (_, next) = places.permission(&key("a"), Some("north"), None);
        assert_eq!(next, [key("b")], "c waits for its region");
        let (_, next) = places.permission(&key("d"), Some("south"), None);
        assert_eq!(next, [key("b"), key("f")]);
    }
}
