//! The limit of operations that run at the same time. An operation gets a place in the order of its creation, keeps it until it
//! has ended, and gives it back when it turns out that it cannot start yet, for example because it is paused.

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
    limit: Option<NonZeroUsize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// UIDs of the operations that have a place.
    taken: HashMap<QueueKey, String>,
    waiting: HashMap<QueueKey, StartOrder>,
}

impl OperationLimit {
    pub(crate) fn new(limit: Option<NonZeroUsize>) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Takes the places of the operations that another process started, and remembers which ones wait. `open` are all operations
    /// that have not ended.
    pub(crate) fn restore(&self, open: &[Arc<ClusterOperation>]) {
        if self.limit.is_none() {
            return;
        }
        let mut state = self.state.lock();
        for operation in open {
            let (queue_key, order) = (QueueKey::of(operation), start_order(operation));
            if has_job(operation) {
                state.taken.insert(queue_key, uid(operation));
            } else {
                let earliest = state.waiting.entry(queue_key).or_insert_with(|| order.clone());
                *earliest = order.min(earliest.clone());
            }
        }
        let State { taken, waiting } = &mut *state;
        waiting.retain(|queue_key, _| !taken.contains_key(queue_key));
    }

    /// Whether `first`, the first open operation of the queue key, may start, and the keys that may have a place now.
    pub(crate) fn permission(
        &self,
        queue_key: &QueueKey,
        first: Option<&ClusterOperation>,
    ) -> (StartPermission, Vec<QueueKey>) {
        let Some(limit) = self.limit.map(NonZeroUsize::get) else {
            return (StartPermission::Now, Vec::new());
        };
        let mut state = self.state.lock();
        let Some(first) = first else {
            let waited = state.waiting.remove(queue_key).is_some();
            let ran = state.taken.remove(queue_key).is_some();
            return (StartPermission::Now, if waited || ran { state.next(limit) } else { Vec::new() });
        };
        let uid = uid(first);
        if has_job(first) || state.taken.get(queue_key) == Some(&uid) {
            state.waiting.remove(queue_key);
            state.taken.insert(queue_key.clone(), uid);
            return (StartPermission::Now, Vec::new());
        }
        // An earlier operation of the key had the place.
        let had_one = state.taken.remove(queue_key).is_some();
        let order = start_order(first);
        let before = state.waiting.iter().filter(|(key, other)| *key != queue_key && **other < order).count();
        if state.taken.len() + before < limit {
            state.waiting.remove(queue_key);
            state.taken.insert(queue_key.clone(), uid);
            return (StartPermission::Now, Vec::new());
        }
        state.waiting.insert(queue_key.clone(), order);
        (StartPermission::Later { limit, before }, if had_one { state.next(limit) } else { Vec::new() })
    }

    /// The first open operation of the queue key does not start yet. Returns the keys that may have its place now.
    pub(crate) fn not_started(&self, queue_key: &QueueKey) -> Vec<QueueKey> {
        let Some(limit) = self.limit.map(NonZeroUsize::get) else { return Vec::new() };
        let mut state = self.state.lock();
        if state.taken.remove(queue_key).is_some() { state.next(limit) } else { Vec::new() }
    }
}

impl State {
    /// The first waiting keys, as many as there are free places.
    fn next(&self, limit: usize) -> Vec<QueueKey> {
        let mut waiting: Vec<_> = self.waiting.iter().collect();
        waiting.sort_by(|a, b| a.1.cmp(b.1));
        let free = limit.saturating_sub(self.taken.len());
        waiting.into_iter().take(free).map(|(queue_key, _)| queue_key.clone()).collect()
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
    fn observed(mut operation: ClusterOperation) -> Arc<ClusterOperation> {
        operation.spec.cluster = operation.metadata.name.clone().unwrap();
        Arc::new(operation)
    }

    fn places(limit: usize) -> OperationLimit {
        OperationLimit::new(NonZeroUsize::new(limit))
    }

    #[test]
    fn operations_get_places_in_the_order_of_their_creation() {
        let places = places(2);
        for (name, second) in [("a", 1), ("b", 2)] {
            assert_eq!(places.permission(&key(name), Some(&operation(name, second))).0, StartPermission::Now);
        }
        let later = |before| StartPermission::Later { limit: 2, before };
        assert_eq!(places.permission(&key("d"), Some(&operation("d", 4))).0, later(0));
        assert_eq!(places.permission(&key("c"), Some(&operation("c", 3))).0, later(0));
        assert_eq!(
            places.permission(&key("d"), Some(&operation("d", 4))).0,
            later(1),
            "c was created before d"
        );
        // The operation of a has ended.
        assert_eq!(places.permission(&key("a"), None).1, [key("c")]);
        assert_eq!(places.permission(&key("d"), Some(&operation("d", 4))).0, later(1), "c is before it");
        assert_eq!(places.permission(&key("c"), Some(&operation("c", 3))).0, StartPermission::Now);
    }

    #[test]
    fn an_operation_that_does_not_start_gives_its_place_back() {
        let places = places(1);
        assert_eq!(places.permission(&key("paused"), Some(&operation("paused", 1))).0, StartPermission::Now);
        assert!(places.permission(&key("b"), Some(&operation("b", 2))).0 != StartPermission::Now);
        assert_eq!(places.not_started(&key("paused")), [key("b")]);
        assert_eq!(places.not_started(&key("paused")), [], "it has none");
        assert_eq!(places.permission(&key("b"), Some(&operation("b", 2))).0, StartPermission::Now);
    }

    #[test]
    fn running_operations_keep_their_places_after_a_restart_also_above_the_limit() {
        let places = places(1);
        places.restore(&["a", "b"].map(|name| observed(running(name, 1))));
        let waits = StartPermission::Later { limit: 1, before: 0 };
        assert_eq!(places.permission(&key("c"), Some(&operation("c", 2))).0, waits);
        assert_eq!(places.permission(&key("a"), None).1, [], "the other one still runs");
        assert_eq!(places.permission(&key("b"), None).1, [key("c")]);
    }

    #[test]
    fn operations_that_waited_before_a_restart_keep_their_order() {
        let places = places(1);
        places.restore(&[("b", 2), ("a", 1)].map(|(name, second)| observed(operation(name, second))));
        let waits = StartPermission::Later { limit: 1, before: 1 };
        assert_eq!(places.permission(&key("b"), Some(&operation("b", 2))).0, waits, "a has not asked yet");
        assert_eq!(places.permission(&key("a"), None).1, [key("b")], "a was deleted meanwhile");
        assert_eq!(places.permission(&key("b"), Some(&operation("b", 2))).0, StartPermission::Now);
    }

    #[test]
    fn the_next_operation_of_a_cluster_waits_behind_those_of_other_clusters() {
        let places = places(1);
        assert_eq!(places.permission(&key("a"), Some(&running("a1", 1))).0, StartPermission::Now);
        assert!(places.permission(&key("b"), Some(&operation("b", 2))).0 != StartPermission::Now);
        let (permission, next) = places.permission(&key("a"), Some(&operation("a2", 3)));
        assert_eq!((permission, next), (StartPermission::Later { limit: 1, before: 1 }, vec![key("b")]));
    }

    #[test]
    fn without_a_limit_every_operation_starts() {
        let places = OperationLimit::new(None);
        for second in 0..100 {
            let name = second.to_string();
            assert_eq!(
                places.permission(&key(&name), Some(&operation(&name, second))).0,
                StartPermission::Now
            );
        }
    }
}
