//! Objects that cannot be parsed. The leader reports each of them once for every generation.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_link_kube::EventRecord;
use kubeon_operations::{ObjectKind, ObjectRef};

use crate::cache::key;
use crate::location;

/// An unreadable object.
struct UnreadableObject {
    uid: String,
    generation: i64,
    record: EventRecord,
    reported: bool,
}

#[derive(Default)]
struct State {
    leads: bool,
    /// By kind and `namespace/name`.
    objects: BTreeMap<(ObjectKind, String), UnreadableObject>,
}

/// The objects that currently cannot be parsed.
#[derive(Default)]
pub(crate) struct Unreadable {
    state: Mutex<State>,
}

impl Unreadable {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Records that an object cannot be parsed. Returns the event to record now.
    pub(crate) fn add(&self, kind: ObjectKind, meta: &ObjectMeta, why: &str) -> Option<EventRecord> {
        let mut state = self.state();
        let leads = state.leads;
        let (uid, generation) = (meta.uid.clone().unwrap_or_default(), meta.generation.unwrap_or_default());
        let object = (kind, key(meta));
        if state
            .objects
            .get(&object)
            .is_some_and(|known| (&known.uid, known.generation) == (&uid, generation))
        {
            return None;
        }
        tracing::warn!(
            kind = kind.as_str(),
            name = object.1,
            why,
            "an object cannot be parsed; it is not reconciled"
        );
        let record = record(kind, meta, why);
        state
            .objects
            .insert(object, UnreadableObject { uid, generation, record: record.clone(), reported: leads });
        leads.then_some(record)
    }

    /// Records that this process is the leader. Returns the events of the objects that were found before.
    pub(crate) fn lead(&self) -> Vec<EventRecord> {
        let mut state = self.state();
        state.leads = true;
        let waiting = state.objects.values_mut().filter(|known| !known.reported);
        waiting
            .map(|known| {
                known.reported = true;
                known.record.clone()
            })
            .collect()
    }

    /// Removes an object that was deleted, or that can be parsed again.
    pub(crate) fn forget(&self, kind: ObjectKind, meta: &ObjectMeta) {
        self.state().objects.remove(&(kind, key(meta)));
    }

    /// Removes the objects of the kind that are not in a completed list.
    pub(crate) fn retain(&self, kind: ObjectKind, listed: &HashSet<String>) {
        self.state().objects.retain(|(other, key), _| *other != kind || listed.contains(key));
    }
}

fn record(kind: ObjectKind, meta: &ObjectMeta, why: &str) -> EventRecord {
    let object = ObjectRef::new(
        kind,
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    );
    EventRecord {
        about: location::reference(&object, meta.uid.as_deref().unwrap_or_default()),
        warning: true,
        reason: "Malformed",
        text: format!("the object cannot be parsed and is not reconciled: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, generation: i64) -> ObjectMeta {
        ObjectMeta {
            name: Some("odd".into()),
            uid: Some(uid.into()),
            generation: Some(generation),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn only_the_leader_reports_an_object_and_once_for_each_generation() {
        let (leader, other) = (Unreadable::default(), Unreadable::default());
        for replica in [&leader, &other] {
            assert!(
                replica.add(ObjectKind::Cluster, &meta("u", 1), "why").is_none(),
                "there is no leader yet"
            );
        }
        assert_eq!(leader.lead().len(), 1);
        assert!(leader.lead().is_empty() && leader.add(ObjectKind::Cluster, &meta("u", 1), "why").is_none());
        assert!(leader.add(ObjectKind::Cluster, &meta("u", 2), "why").is_some());
        assert!(other.add(ObjectKind::Cluster, &meta("u", 2), "why").is_none());
        assert_eq!(other.lead().len(), 1, "a new leader reports the current objects");
    }

    #[test]
    fn deleted_objects_are_removed() {
        let replica = Unreadable::default();
        replica.lead();
        for _ in 0..2 {
            assert!(replica.add(ObjectKind::Cluster, &meta("u", 1), "why").is_some());
            replica.forget(ObjectKind::Cluster, &meta("u", 1));
        }
        assert!(replica.add(ObjectKind::Cluster, &meta("u", 1), "why").is_some());
        replica.retain(ObjectKind::KubernetesCluster, &HashSet::new());
        assert_eq!(replica.state().objects.len(), 1);
        replica.retain(ObjectKind::Cluster, &HashSet::new());
        assert!(replica.state().objects.is_empty());
    }
}
